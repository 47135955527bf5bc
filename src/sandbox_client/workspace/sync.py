"""One directory on two machines: looked at, planned, and brought together, as often as asked."""

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sandbox_client.workspace.endpoint.applier import Outcome
from sandbox_client.workspace.endpoint.entries import Change
from sandbox_client.workspace.local import Near
from sandbox_client.workspace.plan import Direction, Plan, make_plan
from sandbox_client.workspace.remote import Far
from sandbox_client.workspace.sync_state import Ledger, sole_ledger


@dataclass
class Report:
    """What was done, by paths, and what a person should know of."""

    pushed: list[Change] = field(default_factory=list)
    pulled: list[Change] = field(default_factory=list)
    kept_twice: dict[str, str] = field(default_factory=dict)
    restored: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    to_push: list[str] = field(default_factory=list)
    to_pull: list[str] = field(default_factory=list)


class SharedDirectory:
    """The ledger's file says what both sides have in common."""

    def __init__(self, near: Near, far: Far, ledger: Path) -> None:
        self._near = near
        self._far = far
        self._file = ledger

    async def bring_together(self, direction: Direction) -> Report:
        """Carry over what changed on one side, and keep twice what changed on both."""
        async with sole_ledger(self._file, self._far.sandbox.id) as ledger:
            return await self._carry(ledger, await self._plan(ledger, direction))

    async def compare(self) -> Plan:
        """Look at both sides, and tell what would happen if they were brought together."""
        async with sole_ledger(self._file, self._far.sandbox.id) as ledger:
            return await self._plan(ledger, Direction.BOTH)

    async def find_unreadable(self) -> list[str]:
        """List what belongs and may not be read in the sandbox, which a comparison takes for absent."""
        return await self._far.find_unreadable(await self._near.rules())

    async def _plan(self, ledger: Ledger, direction: Direction) -> Plan:
        rules = await self._near.rules()
        ledger.near = await self._near.scan(rules, ledger.known(ledger.near))
        ledger.far = await self._far.scan(rules, ledger.known(ledger.far))
        plan = make_plan(ledger.base, ledger.near, ledger.far, direction)
        for path in plan.same:
            ledger.agree(path, ledger.near.get(path))
        ledger.save()
        return plan

    async def _carry(self, ledger: Ledger, plan: Plan) -> Report:
        report = Report(
            kept_twice=plan.kept_twice,
            restored=plan.restored,
            refused=dict.fromkeys(plan.stuck, "A file here, a directory in the sandbox."),
            to_push=plan.waiting[Direction.PUSH],
            to_pull=plan.waiting[Direction.PULL],
        )
        with tempfile.TemporaryDirectory() as scratch:
            parcel = Path(scratch, "parcel")
            # First what comes: of what both changed, the sandbox's is safe before ours replaces it.
            if plan.pull:
                await self._far.pack(plan.pull, parcel)
                outcome = await self._near.apply(parcel, plan.pull)
                report.pulled = _settle(ledger, outcome, report)
                _agree_on_copied(ledger, plan, report.pulled)
            if changes := _harmless(ledger, plan, report.pulled):
                await self._near.pack(changes, parcel)
                report.pushed = _settle(ledger, await self._far.apply(parcel), report)
        return report


def _settle(ledger: Ledger, outcome: Outcome, report: Report) -> list[Change]:
    report.refused |= outcome.refused
    ledger.settle(outcome.done)
    ledger.save()
    return outcome.done


def _agree_on_copied(ledger: Ledger, plan: Plan, pulled: Sequence[Change]) -> None:
    """Take the sandbox's for known where it was copied: ours is a change of it from now on."""
    copied = set(paths_of(pulled))
    for ours, copy in plan.kept_twice.items():
        if copy in copied:
            ledger.agree(ours, ledger.far[ours])
    ledger.save()


def _harmless(ledger: Ledger, plan: Plan, pulled: Sequence[Change]) -> list[Change]:
    """Leave out what would replace a file of the sandbox's that is not kept here."""
    kept = {*paths_of(pulled), *ledger.near}
    return [
        change
        for change in plan.push
        if change.path not in plan.kept_twice or plan.kept_twice[change.path] in kept
    ]


def paths_of(changes: Sequence[Change]) -> list[str]:
    return [change.path for change in changes]
