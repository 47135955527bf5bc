from dataclasses import dataclass

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import ApiKey, Login, Tenant

_now = func.clock_timestamp()


@dataclass(frozen=True)
class OwnedLogin:
    """A login, the key it was created with and the name of the key's tenant."""

    login: Login
    key: ApiKey
    tenant: str


class LoginRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def find_valid(self, secret_hash: bytes) -> OwnedLogin | None:
        """Find the login whose secret has this hash, unless it has expired or its key is revoked."""
        found = await self._session.execute(
            select(Login, ApiKey, Tenant.name)
            .join(ApiKey, ApiKey.id == Login.key_id)
            .join(Tenant, Tenant.id == ApiKey.tenant_id)
            .where(Login.hash == secret_hash, Login.expires_at > _now, ApiKey.revoked_at.is_(None))
        )
        row = found.one_or_none()
        return None if row is None else OwnedLogin(row[0], row[1], row[2])

    async def add(self, login: Login) -> None:
        self._session.add(login)
        await self._session.flush()

    async def remove(self, login_id: str) -> None:
        await self._session.execute(delete(Login).where(Login.id == login_id))

    async def remove_oldest(self, key_id: str, *, keep: int) -> None:
        """Remove all but the newest logins of a key."""
        older = (
            select(Login.id).where(Login.key_id == key_id).order_by(Login.id.desc()).offset(keep)
        )
        await self._session.execute(delete(Login).where(Login.id.in_(older)))
