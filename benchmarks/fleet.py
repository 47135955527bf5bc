"""Many sandboxes at a provider, and the rows of the server that manages them."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import insert

from sandbox_server.db.models import Backend, Job, Sandbox, Tenant
from sandbox_server.db.session import Sessions
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.state import OnTimeout, State, Target
from sandbox_server.jobs.kinds import SANDBOX
from sandbox_server.providers.e2b import E2BBackend
from sandbox_server.providers.protocol.provider import Access, NewSandbox
from sandbox_server.sandboxes.services.encrypted_columns import seal_access
from sandbox_server.vault import Vault

_AT_ONCE = 64
_HOUR = timedelta(hours=1)


@dataclass(frozen=True)
class Running:
    """A sandbox that runs at the provider until its timeout."""

    id: str
    access: Access
    until: datetime
    on_timeout: OnTimeout

    def row(self, vault: Vault) -> dict[str, Any]:
        return {
            "id": self.id,
            "template": "base",
            "backend_sandbox_id": self.access.provider_id,
            "access_sealed": seal_access(vault, self.id, self.access),
            "state": State.RUNNING,
            "target": Target.RUNNING,
            "timeout": _HOUR,
            "on_timeout": self.on_timeout,
            "started_at": self.until - _HOUR,
            "last_activity_at": self.until - _HOUR,
            "expires_at": self.until,
            "provider_until": self.until + _HOUR,
        }


async def create(backend: E2BBackend, sandboxes: int) -> Sequence[tuple[str, Access]]:
    """Start this many sandboxes at the provider."""
    free = asyncio.Semaphore(_AT_ONCE)

    async def one() -> tuple[str, Access]:
        wanted = NewSandbox(sandbox_id=new_id(), tenant_id="", template="base", timeout=_HOUR)
        async with free:
            return wanted.sandbox_id, await backend.create(wanted)

    return await asyncio.gather(*(one() for _ in range(sandboxes)))


def spread(
    created: Sequence[tuple[str, Access]], *, first_at: datetime, within: timedelta
) -> Sequence[Running]:
    """Expire the sandboxes one after the other; delete every second one."""
    step = within / len(created)
    return [
        Running(
            id_, access, first_at + step * number, (OnTimeout.PAUSE, OnTimeout.DELETE)[number % 2]
        )
        for number, (id_, access) in enumerate(created)
    ]


async def record(
    sessions: Sessions, vault: Vault, fleet: Sequence[Running], *, backend: str
) -> None:
    """Insert sandboxes of one tenant with jobs that are due at their timeouts."""
    tenant_id, many = new_id(), len(fleet)
    where = {"tenant_id": tenant_id, "backend": backend}
    jobs = [{"kind": SANDBOX, "subject": one.id, "run_at": one.until} for one in fleet]
    async with sessions.begin() as session:
        session.add(Tenant(id=tenant_id, name=tenant_id, max_running=many, max_queued=many))
        session.add(Backend(name=backend, capacity=many, state="up"))
        await session.flush()
        await session.execute(insert(Sandbox), [one.row(vault) | where for one in fleet])
        await session.execute(insert(Job), jobs)
