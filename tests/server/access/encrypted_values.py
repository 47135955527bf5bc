from datetime import timedelta

from sqlalchemy import select

from sandbox_server.db.models import Sandbox, Tenant
from sandbox_server.domain.ids import new_id


async def add_sandboxes(sessions, vault, *, count):
    """Add rows with encrypted values that name their row; returns the ids."""
    ids = [new_id() for _ in range(count)]
    async with sessions.begin() as session:
        session.add(tenant := Tenant(id=new_id(), name=new_id(), max_running=1, max_queued=1))
        await session.flush()
        session.add_all(_row(vault, sandbox_id, tenant.id) for sandbox_id in ids)
    return ids


async def envs_of(sessions, vault, ids):
    async with sessions() as session:
        rows = await session.scalars(
            select(Sandbox).where(Sandbox.id.in_(ids)).order_by(Sandbox.id)
        )
        return [
            vault.decrypt(row.envs_sealed, context=f"sandboxes.envs/{row.id}").decode()
            for row in rows
        ]


def _row(vault, sandbox_id, tenant_id):
    return Sandbox(
        id=sandbox_id,
        tenant_id=tenant_id,
        template="base",
        timeout=timedelta(hours=1),
        envs_sealed=_seal(vault, "envs", sandbox_id),
        access_sealed=_seal(vault, "access", sandbox_id),
    )


def _seal(vault, kind, sandbox_id):
    return vault.encrypt(
        f"{kind} of {sandbox_id}".encode(), context=f"sandboxes.{kind}/{sandbox_id}"
    )
