"""Synchronizes one directory on two machines: scan both, plan, apply."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_client.workspace.endpoint.applier import Outcome
from sandbox_client.workspace.endpoint.entries import Change
from sandbox_client.workspace.local import LocalEndpoint
from sandbox_client.workspace.plan import Direction, Plan, make_plan
from sandbox_client.workspace.remote import RemoteEndpoint
from sandbox_client.workspace.sync_state import SyncState, locked_sync_state


@dataclass
class SyncReport:
    """The result of one synchronization."""

    pushed: list[Change] = field(default_factory=list)
    pulled: list[Change] = field(default_factory=list)
    conflicts: dict[str, str] = field(default_factory=dict)
    restored: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    to_push: list[str] = field(default_factory=list)
    to_pull: list[str] = field(default_factory=list)


class DirectorySync:
    """Synchronizes a local directory with a sandbox; `state_file` keeps their last common state."""

    def __init__(self, local: LocalEndpoint, remote: RemoteEndpoint, state: Path) -> None:
        self._local = local
        self._remote = remote
        self._file = state

    async def synchronize(self, direction: Direction) -> SyncReport:
        """Copy changes to the other side; of a file changed on both sides, keep both versions."""
        async with locked_sync_state(self._file, self._remote.sandbox.id) as state:
            return await self._carry(state, await self._plan(state, direction))

    async def compare(self) -> Plan:
        """Plan a synchronization without applying it."""
        async with locked_sync_state(self._file, self._remote.sandbox.id) as state:
            return await self._plan(state, Direction.BOTH)

    async def find_unreadable(self) -> list[str]:
        """List unreadable files in the sandbox, which a comparison treats as missing."""
        return await self._remote.find_unreadable(await self._local.rules())

    async def _plan(self, state: SyncState, direction: Direction) -> Plan:
        rules = await self._local.rules()
        state.local = await self._local.scan(rules, state.known(state.local))
        state.remote = await self._remote.scan(rules, state.known(state.remote))
        plan = make_plan(state.base, state.local, state.remote, direction)
        for path in plan.same:
            state.set_common(path, state.local.get(path))
        state.save()
        return plan

    async def _carry(self, state: SyncState, plan: Plan) -> SyncReport:
        report = SyncReport(
            conflicts=plan.conflicts,
            restored=plan.restored,
            refused=dict.fromkeys(
                plan.type_conflicts, "It is a file locally and a directory in the sandbox."
            ),
            to_push=plan.waiting[Direction.PUSH],
            to_pull=plan.waiting[Direction.PULL],
        )
        with tempfile.TemporaryDirectory() as scratch:
            changeset_file = Path(scratch, "parcel")
            # Pull first: the sandbox's version of a conflict is saved here before ours replaces it.
            if plan.pull:
                await self._remote.pack(plan.pull, changeset_file)
                outcome = await self._local.apply(changeset_file, plan.pull)
                report.pulled = _record(state, outcome, report)
                _record_copies(state, plan, report.pulled)
            if changes := _safe_to_push(state, plan, report.pulled):
                await self._local.pack(changes, changeset_file)
                report.pushed = _record(state, await self._remote.apply(changeset_file), report)
        return report


def _record(state: SyncState, outcome: Outcome, report: SyncReport) -> list[Change]:
    report.refused |= outcome.refused
    state.record(outcome.done)
    state.save()
    return outcome.done


def _record_copies(state: SyncState, plan: Plan, pulled: Sequence[Change]) -> None:
    """Where the sandbox's version was saved, make it the base, so that ours counts as a change of it."""
    copied = set(paths_of(pulled))
    for ours, copy in plan.conflicts.items():
        if copy in copied:
            state.set_common(ours, state.remote[ours])
    state.save()


def _safe_to_push(state: SyncState, plan: Plan, pulled: Sequence[Change]) -> list[Change]:
    """Leave out changes that would overwrite a sandbox file whose content is not saved here."""
    kept = {*paths_of(pulled), *state.local}
    return [
        change
        for change in plan.push
        if change.path not in plan.conflicts or plan.conflicts[change.path] in kept
    ]


def paths_of(changes: Sequence[Change]) -> list[str]:
    return [change.path for change in changes]
