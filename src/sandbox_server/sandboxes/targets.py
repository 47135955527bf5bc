from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.deadlines import Deadlines, set_timeout, touch, want_back
from sandbox_server.domain.due import next_due, waits_for_slot
from sandbox_server.domain.errors import InvalidRequest, InvalidTransition
from sandbox_server.domain.events import Actor, deadline_changed
from sandbox_server.domain.requests import SandboxPatch
from sandbox_server.domain.state import ENDED, State, Target
from sandbox_server.domain.steps import require_target
from sandbox_server.domain.transition_cause import TransitionCause
from sandbox_server.jobs.kinds import SANDBOX, SERVICES
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.log.events import EventRepository
from sandbox_server.providers.protocol.errors import LacksCapability
from sandbox_server.providers.registry import Backends
from sandbox_server.sandboxes.admission import Admission
from sandbox_server.sandboxes.changes import Changes
from sandbox_server.sandboxes.observation import Observation
from sandbox_server.sandboxes.reconciler import InlineJobs
from sandbox_server.sandboxes.repositories.sandboxes import (
    SandboxRepository,
    deadlines_of,
    set_deadlines,
)
from sandbox_server.sandboxes.services.encrypted_columns import open_envs, seal_envs
from sandbox_server.vault import Vault

Change = Callable[[Deadlines, datetime], Deadlines]

# States in which services read their settings, or soon will.
_READS_SETTINGS = frozenset({State.STARTING, State.RUNNING, State.RESUMING})


def unchanged(row: Deadlines, _now: datetime) -> Deadlines:
    return row


class Targets:
    """Commits what callers want of sandboxes, and begins to carry it out.

    The target and the job that reaches it are one transaction. If another process holds the job, it is woken.
    """

    def __init__(
        self,
        sessions: Sessions,
        jobs: InlineJobs,
        admission: Admission,
        backends: Backends,
        changes: Changes,
    ) -> None:
        self._sessions = sessions
        self._jobs = jobs
        self._admission = admission
        self._backends = backends
        self._changes = changes

    async def want(
        self, tenant_id: str, sandbox_id: str, target: Target, cause: TransitionCause
    ) -> Sandbox:
        """Set the target `paused` or `gone`; a sandbox that has it already stays as it is."""
        async with self._sessions.begin() as session:
            row, now = await SandboxRepository(session).lock(sandbox_id, tenant_id=tenant_id)
            _require_wish(row, target)
            rules = self._backends.rules(row.backend)
            if row.backend is not None and target is Target.PAUSED and not rules.can_pause:
                raise LacksCapability(row.backend, "pause")
            if row.target is not target:
                set_target(row, target, cause)
            job = await self._jobs.lease(session, row)
        self._jobs.begin(job, Observation.of_read(row, now))
        return row

    async def want_back(
        self, tenant_id: str, sandbox_id: str, cause: TransitionCause, *, change: Change = unchanged
    ) -> Sandbox:
        """Set the target `running` and change the deadlines; a paused sandbox is admitted or waits."""
        backends = await self._find_backends_to_lock(tenant_id, sandbox_id)
        async with self._sessions.begin() as session:
            # In the order of every admission: backends before sandboxes.
            locked = await self._admission.lock(session, backends) if backends else []
            row, now = await SandboxRepository(session).lock(sandbox_id, tenant_id=tenant_id)
            _require_wish(row, Target.RUNNING)
            before = after = deadlines_of(row)
            if is_new := row.target is not Target.RUNNING:
                set_target(row, Target.RUNNING, cause)
                row.queued_at = now
                after = want_back(before, now, rules=self._backends.rules(row.backend))
            set_deadlines(row, after := change(after, now))
            admitted = False
            if is_new and row.state is State.PAUSED:
                admitted = await self._admission.admit_paused(session, row, locked)
            job = await self._jobs.lease(session, row)
            if job is None:
                await self._reschedule(session, row, before, after, now)
            await _append_event(session, row, before, after, actor=cause.actor)
        if admitted:
            self._changes.publish(row)
        observe = Observation.of_commit if admitted else Observation.of_read
        self._jobs.begin(job, observe(row, now))
        return row

    async def change(
        self, tenant_id: str, sandbox_id: str, change: Callable[[Sandbox], Change], *, actor: Actor
    ) -> Sandbox:
        """Change columns that callers own, and the deadlines."""
        async with self._sessions.begin() as session:
            row, now = await SandboxRepository(session).lock(sandbox_id, tenant_id=tenant_id)
            _require_wish(row, Target.RUNNING)
            before = deadlines_of(row)
            after = change(row)(deadlines_of(row), now)
            set_deadlines(row, after)
            await self._reschedule(session, row, before, after, now)
            if row.has_services and row.services_digest is None and row.state in _READS_SETTINGS:
                await JobRepository(session).due(SERVICES, row.id)
            await _append_event(session, row, before, after, actor=actor)
        return row

    async def _find_backends_to_lock(self, tenant_id: str, sandbox_id: str) -> list[str]:
        async with without_transaction(self._sessions) as session:
            row = await SandboxRepository(session).get(sandbox_id, tenant_id=tenant_id)
        return [row.backend] if row.state is State.PAUSED and row.backend else []

    async def _reschedule(
        self,
        session: AsyncSession,
        row: Sandbox,
        before: Deadlines,
        after: Deadlines,
        now: datetime,
    ) -> None:
        """Make the job due earlier if a deadline moved forward; a job that is due too early postpones itself."""
        rules = self._backends.rules(row.backend)
        was, is_ = next_due(before, now, rules=rules), next_due(after, now, rules=rules)
        if is_ is not None and (was is None or is_.at < was.at):
            await JobRepository(session).due(SANDBOX, row.id, is_.at)


def _require_wish(row: Sandbox, target: Target) -> None:
    if row.target is Target.GONE and target is not Target.GONE:
        raise InvalidTransition(row.state if row.state in ENDED else State.STOPPING, target)
    require_target(row.state, target)


def set_target(row: Sandbox, target: Target, cause: TransitionCause) -> None:
    """Set the target of a locked row; the caller makes its job due."""
    row.target, row.wish = target, cause.document()
    row.wanted += 1


async def _append_event(
    session: AsyncSession, row: Sandbox, before: Deadlines, after: Deadlines, *, actor: Actor
) -> None:
    event = deadline_changed(before, after, sandbox_id=row.id, actor=actor)
    if event is not None:
        await EventRepository(session).append(row.tenant_id, event)


def patched(patch: SandboxPatch, caller: Caller, vault: Vault) -> Callable[[Sandbox], Change]:
    """Build the change of a row and its deadlines from a patch."""

    def change_row(row: Sandbox) -> Change:
        if "priority" in patch:
            _require_waiting(row)
            row.priority = min(patch["priority"], caller.max_priority)
        if "metadata" in patch:
            row.labels = patch["metadata"]
        if "auto_resume" in patch:
            row.auto_resume = patch["auto_resume"]
        if "mcp_servers" in patch:
            _set_mcp_servers(row, patch["mcp_servers"], vault)
        return change_deadlines

    def change_deadlines(row: Deadlines, now: datetime) -> Deadlines:
        if "idle_timeout" in patch:
            row = touch(replace(row, idle_timeout=patch["idle_timeout"]), now)
        if "on_timeout" in patch:
            row = replace(row, on_timeout=patch["on_timeout"])
        if "timeout" in patch:
            row = set_timeout(row, now, timeout=patch["timeout"])
        return row

    return change_row


def _set_mcp_servers(row: Sandbox, servers: Mapping[str, Any], vault: Vault) -> None:
    """Replace the MCP servers in the settings of the sandbox's services, which are outdated from here on."""
    known = open_envs(vault, row.id, row.envs_sealed)
    known.pop("mcp_servers", None)
    updated = {**known, "mcp_servers": dict(servers)} if servers else known
    row.envs_sealed = seal_envs(vault, row.id, updated)
    row.has_services = True
    row.services_digest = None


def _require_waiting(row: Sandbox) -> None:
    if not waits_for_slot(deadlines_of(row)):
        raise InvalidRequest(f"The sandbox is {row.state}; only queued sandboxes have a priority.")
