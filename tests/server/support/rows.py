"""Rows as tests need them, without the life that leads to them."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import select

from sandbox_server.access.tenant_repository import TenantRepository
from sandbox_server.access.tenants import DEFAULT_TENANT, MAX_QUEUED, MAX_RUNNING
from sandbox_server.db.models import Backend, Sandbox, Tenant
from sandbox_server.domain.events import SERVER, Cause, Stopping
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.state import State, Target
from sandbox_server.log.events import EventRepository

HOUR = timedelta(hours=1)


async def find_tenant(sessions, name="default"):
    async with sessions() as session:
        return await session.scalar(select(Tenant.id).where(Tenant.name == name))


async def add_default_tenant(sessions):
    async with sessions.begin() as session:
        await TenantRepository(session).add_missing(
            DEFAULT_TENANT, max_running=MAX_RUNNING, max_queued=MAX_QUEUED
        )


async def add_backend(sessions, name="local", **fields):
    async with sessions.begin() as session:
        session.add(Backend(**{"name": name, "capacity": 10, "state": "up", **fields}))


async def add_sandbox(sessions, tenant_id, **fields):
    plain = {
        "template": "base",
        "state": State.RUNNING,
        "target": Target.RUNNING,
        "expires_at": now() + HOUR,
    }
    row = Sandbox(id=new_id(), tenant_id=tenant_id, timeout=HOUR, **plain | fields)
    async with sessions.begin() as session:
        session.add(row)
    return row


async def add_event(sessions, tenant_id, sandbox_id, reason="It was time."):
    event = Stopping(sandbox_id=sandbox_id, cause=Cause.EXPIRY, actor=SERVER, reason=reason)
    async with sessions.begin() as session:
        await EventRepository(session).append(tenant_id, event)


def now():
    return datetime.now(UTC)
