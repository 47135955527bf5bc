"""A server as callers find it, without the API: scheduler, admission and controller on a real database and provider."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncEngine

from sandbox_server.commands.recordings import Recordings, open_recordings
from sandbox_server.commands.service import Commands
from sandbox_server.db.models import Backend, Sandbox, Snapshot, Tenant
from sandbox_server.db.notifications import Notifications
from sandbox_server.db.session import create_sessions
from sandbox_server.domain.access import Caller, Scope
from sandbox_server.domain.ids import ApiKeyId, TenantId, new_id
from sandbox_server.domain.requests import SandboxRequest
from sandbox_server.domain.state import State
from sandbox_server.jobs.kinds import ADMISSION, SANDBOX, SERVICES, SNAPSHOT, TEMPLATE_BUILD
from sandbox_server.jobs.policy import Policy
from sandbox_server.jobs.scheduler import SandboxQueueScheduler
from sandbox_server.lifecycle import build_reconciliation, build_use_cases
from sandbox_server.log.notifications import LogNotifications
from sandbox_server.proxy.targets import PublicAddress
from sandbox_server.sandboxes.changes import Changes
from sandbox_server.sandboxes.placement import Placement
from sandbox_server.sandboxes.repositories.sandboxes import SandboxFilter
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.snapshots.service import SnapshotService
from sandbox_server.templates.builder import TemplateBuilder
from tests.engine.polling import until
from tests.server.jobs.running_scheduler import POLLING
from tests.server.support.managed_sandboxes import MINUTE, Living

PUBLIC = PublicAddress("http://localhost:8100")


def caller_of(tenant_id: str, **fields: Any) -> Caller:
    return Caller(
        tenant_id=TenantId(tenant_id),
        key_id=ApiKeyId(new_id()),
        scopes=frozenset({Scope.SANDBOXES}),
        **fields,
    )


@dataclass(frozen=True)
class Serving:
    """One server, and a caller of it; other servers may be on the same database."""

    living: Living
    scheduler: SandboxQueueScheduler
    controller: SandboxController
    copies: SnapshotService
    caller: Caller
    commands: Commands
    recordings: Recordings

    async def create(self, **fields: Any) -> Sandbox:
        """Have a sandbox made, and wait until it runs or has failed."""
        wanted = SandboxRequest(**{"template": "base", **fields})
        return await self.controller.create(self.caller, wanted, wait=2 * MINUTE)

    async def running(self, **fields: Any) -> Sandbox:
        row = await self.create(**fields)
        assert row.state is State.RUNNING
        return row

    async def paused(self, **fields: Any) -> Sandbox:
        row = await self.controller.pause(self.caller, (await self.running(**fields)).id)
        assert row.state is State.PAUSED
        return row

    async def queued(self, **fields: Any) -> Sandbox:
        """Have a sandbox wait for a place, of which there is none."""
        await self.set_capacity(0)
        wanted = SandboxRequest(**{"template": "base", **fields})
        row = await self.controller.create(self.caller, wanted, wait=0 * MINUTE)
        assert row.state is State.QUEUED
        return row

    async def settled(self, sandbox_id: str, state: State) -> Sandbox:
        """Wait until the sandbox is in this state, by the server's own doing."""

        async def is_there() -> bool:
            return (await self.living.row(sandbox_id)).state is state

        await until(is_there, timeout=60)
        return await self.living.row(sandbox_id)

    async def has_queue(self) -> bool:
        queued = SandboxFilter(states=frozenset({State.QUEUED}))
        return bool(await self.controller.list_page(self.caller, queued, limit=1))

    async def add_tenant(self, tenant_id: str) -> None:
        async with self.living.sessions.begin() as session:
            session.add(Tenant(id=tenant_id, name=tenant_id, max_running=9, max_queued=9))

    async def set_capacity(self, capacity: int) -> None:
        async with self.living.sessions.begin() as session:
            await session.execute(update(Backend).values(capacity=capacity))

    async def set_tenant(self, **columns: Any) -> None:
        mine = Tenant.id == self.living.tenant_id
        async with self.living.sessions.begin() as session:
            await session.execute(update(Tenant).where(mine).values(**columns))

    async def snapshots(self) -> list[Snapshot]:
        async with self.living.sessions() as session:
            return list(await session.scalars(select(Snapshot).order_by(Snapshot.id)))


@asynccontextmanager
async def running_server(
    database: AsyncEngine,
    living: Living,
    *,
    policy: Policy = POLLING,
    lease: timedelta = MINUTE,
    bound: int = 2**20,
) -> AsyncIterator[Serving]:
    """Run a server's scheduler on the sandboxes of `living`, and stop it in good order."""
    sessions = create_sessions(database)
    notifications = Notifications(database)
    changes = Changes(notifications)
    backends, vault = living.backends, living.vault
    core = build_reconciliation(sessions, backends, vault, changes=changes, public_address=PUBLIC)
    handlers = {
        SANDBOX: core.reconciler.reconcile,
        ADMISSION: core.admission.admit_queued,
        SERVICES: core.service_config.update,
        SNAPSHOT: core.snapshots.reconcile,
        TEMPLATE_BUILD: TemplateBuilder(sessions, backends, vault, core.waiters.release).work,
    }
    scheduler = SandboxQueueScheduler(
        sessions, handlers, notifications, policy=policy, limits=backends.limits
    )
    use_cases = build_use_cases(
        sessions,
        backends,
        vault,
        core,
        scheduler,
        changes=changes,
        placement=Placement(backends),
    )
    controller = use_cases.controller
    recordings = open_recordings(
        sessions,
        use_cases.access,
        use_cases.activity,
        changes,
        notifications,
        lease=lease,
        bound=bound,
    )
    commands = Commands(sessions, controller, recordings, LogNotifications(notifications))
    caller = caller_of(living.tenant_id)
    running = asyncio.create_task(scheduler.run())
    works = (notifications.run(), controller.activity.run(), recordings.run())
    beside = [asyncio.create_task(work) for work in works]
    try:
        yield Serving(
            living, scheduler, controller, use_cases.snapshots, caller, commands, recordings
        )
    finally:
        scheduler.stop()
        await running
        await recordings.close(within=MINUTE)
        for task in beside:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
