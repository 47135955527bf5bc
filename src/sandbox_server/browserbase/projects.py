import uuid
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BigInteger, cast, func, select

from sandbox_server.browsers.service import DEFAULT_TIMEOUT
from sandbox_server.db.models import BrowserSession, Tenant
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import BrowserProjectNotFound

_NAMESPACE = uuid.UUID("9c1f0f0e-6d0b-5b51-9a52-6a54f3c6b6f5")


@dataclass(frozen=True, kw_only=True)
class Project:
    """A tenant, as Browserbase's clients see it."""

    id: str
    name: str
    concurrency: int
    default_timeout_s: int
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class ProjectUsage:
    browser_minutes: int
    proxy_bytes: int


class Projects:
    """Projects of Browserbase's API: each tenant is one."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def get(self, caller: Caller, project_id: str | None = None) -> Project:
        """Get the caller's project; None stands for it."""
        async with without_transaction(self._sessions) as session:
            tenant = await session.get_one(Tenant, caller.tenant_id)
        own = project_id_of(tenant.id)
        if project_id not in {None, own}:
            raise BrowserProjectNotFound(str(project_id))
        return Project(
            id=own,
            name=tenant.name,
            concurrency=tenant.max_running,
            default_timeout_s=int(DEFAULT_TIMEOUT.total_seconds()),
            created_at=tenant.created_at,
        )

    async def usage(self, caller: Caller, project_id: str) -> ProjectUsage:
        """Sum up the sessions whose records are still kept."""
        await self.get(caller, project_id)
        ran_until = func.coalesce(BrowserSession.ended_at, func.clock_timestamp())
        seconds = func.extract("epoch", ran_until - BrowserSession.started_at)
        sums = select(
            cast(func.coalesce(func.sum(seconds) / 60, 0), BigInteger),
            cast(func.coalesce(func.sum(BrowserSession.proxy_bytes), 0), BigInteger),
        ).where(BrowserSession.tenant_id == caller.tenant_id)
        async with without_transaction(self._sessions) as session:
            minutes, proxied = (await session.execute(sums)).one()
        return ProjectUsage(browser_minutes=minutes, proxy_bytes=proxied)


def project_id_of(tenant_id: str) -> str:
    """Derive the UUID that Browserbase's clients expect."""
    return str(uuid.uuid5(_NAMESPACE, tenant_id))
