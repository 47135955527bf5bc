"""A forge in memory, behind the protocol of adapters: what tests put there is what the server finds."""

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import select

from sandbox_server.db.models import Forge, Tenant
from sandbox_server.db.session import Sessions
from sandbox_server.domain.errors import NotFound
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.tasks.forges import RepositoryFacts


class NotAtForge(NotFound):
    noun = "repository at the forge"


def widgets(**fields: Any) -> RepositoryFacts:
    plain = RepositoryFacts(
        external_id="1001",
        full_name="acme/widgets",
        default_branch="main",
        private=True,
        url="https://forge.example/acme/widgets",
        size_bytes=4096,
        permissions=frozenset({"pull", "push"}),
    )
    return replace(plain, **fields)


@dataclass
class MemoryForge:
    """One forge and its adapter. Old names of repositories lead to the present ones, as at GitHub."""

    repositories: dict[str, RepositoryFacts] = field(
        default_factory=lambda: {"acme/widgets": widgets()}
    )
    asked: list[tuple[str, ...]] = field(default_factory=list)
    clock: datetime = datetime(2026, 1, 1, tzinfo=UTC)

    def tick(self, duration: timedelta = timedelta(seconds=1)) -> datetime:
        self.clock += duration
        return self.clock

    async def find_repository(self, full_name: str) -> RepositoryFacts:
        self.asked.append(("find_repository", full_name))
        if full_name not in self.repositories:
            raise NotAtForge(full_name)
        return self.repositories[full_name]


@dataclass
class MemoryForges:
    """Forges of a database, each with an adapter in memory."""

    sessions: Sessions
    adapters: dict[str, MemoryForge] = field(default_factory=dict)

    async def get(self, caller: Any, name: str) -> Forge:
        async with self.sessions() as session:
            found = await session.scalar(
                select(Forge).where(Forge.tenant_id == caller.tenant_id, Forge.name == name)
            )
        if found is None:
            raise NotAtForge(name)
        return found

    async def adapter(self, forge_id: str) -> MemoryForge:
        return self.adapters[forge_id]


async def add_forge(sessions: Sessions, tenant_id: str, *, name: str = "github") -> str:
    row = Forge(
        id=new_id(),
        tenant_id=tenant_id,
        name=name,
        kind="github",
        api_url="https://api.forge.example",
        git_url="https://forge.example",
        auth="none",
        bot_login="agent[bot]",
        bot_id="77",
    )
    async with sessions.begin() as session:
        session.add(row)
    return row.id


async def add_tenant(sessions: Sessions) -> str:
    tenant_id = new_id()
    async with sessions.begin() as session:
        session.add(Tenant(id=tenant_id, name=tenant_id, max_running=9, max_queued=9))
    return tenant_id
