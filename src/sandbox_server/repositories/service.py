import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.idempotency import IdempotencyRepository
from sandbox_server.db.models import Forge, Repository
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import (
    InvalidRequest,
    NameTaken,
    RepositoryInUse,
    RepositoryNotFound,
)
from sandbox_server.domain.ids import is_id
from sandbox_server.domain.requests import Idempotency
from sandbox_server.domain.tasks.forges import RepositoryFacts
from sandbox_server.domain.tasks.repositories import RepositorySettings
from sandbox_server.forges.adapter import ForgeAdapter
from sandbox_server.jobs.kinds import PREPARATION, REPOSITORY, TRIGGER_LOOK
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.repositories import prepared
from sandbox_server.repositories.facts import describe
from sandbox_server.repositories.repository import RepositoryRows
from sandbox_server.vault import Vault

_PAUSED_BY_USER = "Paused by request."


class ForgeDirectory(Protocol):
    """The forges, as features above them use them."""

    async def get(self, caller: Caller, name: str) -> Forge: ...

    async def find_row(self, forge_id: str) -> Forge | None: ...

    async def adapter(self, forge_id: str) -> ForgeAdapter: ...


@dataclass(frozen=True, kw_only=True)
class RepositoryChanges:
    """Changes that were requested; None leaves a value as it is."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    """Values by name; None restores the default."""
    envs: Mapping[str, str] | None = None
    triggers_paused: bool | None = None


@dataclass(frozen=True)
class RepositoryEntry:
    """A repository as callers see it."""

    row: Repository
    forge: str
    env_names: Sequence[str]


class Repositories:
    """Use cases of repositories."""

    def __init__(self, sessions: Sessions, vault: Vault, forges: ForgeDirectory) -> None:
        self._sessions = sessions
        self._vault = vault
        self._forges = forges

    async def create(
        self,
        caller: Caller,
        *,
        forge: str,
        full_name: str,
        wanted: RepositoryChanges,
        idempotency: Idempotency | None = None,
    ) -> RepositoryEntry:
        """Add a repository that the forge's credential can see."""
        async with without_transaction(self._sessions) as session:
            earlier = await _find_earlier(session, caller, idempotency)
        if earlier is not None:
            return await self.get(caller, earlier)
        known = await self._forges.get(caller, forge)
        adapter = await self._forges.adapter(known.id)
        facts = await adapter.find_repository(full_name)
        async with self._sessions.begin() as session:
            row = await RepositoryRows(session).find_or_add(known, facts)
            if row.removed_at is not None:
                await IdempotencyRepository(session).claim(
                    caller.tenant_id, idempotency, resource="repository", resource_id=row.id
                )
                self._begin(row, facts, wanted)
                await _look_for_triggers(session, row)
            elif await _find_earlier(session, caller, idempotency) != row.id:
                raise NameTaken("repository", row.full_name)
        return self._entry(row, known.name)

    async def get(self, caller: Caller, repository_id: str) -> RepositoryEntry:
        async with without_transaction(self._sessions) as session:
            row = await RepositoryRows(session).get(repository_id, tenant_id=caller.tenant_id)
            [entry] = await self._entries(session, [row])
        return entry

    async def find_by_name(
        self, tenant_id: str, full_name: str, *, forge: str | None = None
    ) -> Repository:
        """Get a tenant's repository by its name, and the forge where several have one of this name."""
        async with without_transaction(self._sessions) as session:
            rows = await RepositoryRows(session).list_by_name(tenant_id, full_name, forge=forge)
        if not rows:
            raise RepositoryNotFound(full_name)
        if len(rows) > 1:
            raise InvalidRequest(
                f"Several forges have a repository {full_name!r}. Use the repository's id."
            )
        return rows[0]

    async def find_named(self, tenant_id: str, name: str) -> Repository:
        """Get a tenant's repository by its id or its full name."""
        if is_id(name):
            async with without_transaction(self._sessions) as session:
                return await RepositoryRows(session).get(name, tenant_id=tenant_id)
        return await self.find_by_name(tenant_id, name)

    async def list_page(
        self, caller: Caller, *, full_name: str | None = None, limit: int, before: str | None
    ) -> Sequence[RepositoryEntry]:
        async with without_transaction(self._sessions) as session:
            rows = await RepositoryRows(session).list_page(
                caller.tenant_id, full_name=full_name, limit=limit, before=before
            )
            return await self._entries(session, rows)

    async def update(
        self, caller: Caller, repository_id: str, changes: RepositoryChanges
    ) -> RepositoryEntry:
        """Change settings, variables and triggers. Tasks keep the settings that they were created with."""
        async with self._sessions.begin() as session:
            row = await RepositoryRows(session).lock(repository_id, tenant_id=caller.tenant_id)
            self._change(row, changes)
            if "triggers" in changes.settings:
                await _look_for_triggers(session, row)
            [entry] = await self._entries(session, [row])
        return entry

    async def remove(self, caller: Caller, repository_id: str) -> None:
        """Remove a repository without open tasks; its ended tasks stay. Nothing changes at the forge."""
        async with self._sessions.begin() as session:
            rows = RepositoryRows(session)
            row = await rows.lock(repository_id, tenant_id=caller.tenant_id)
            if tasks := await rows.count_open_tasks(repository_id):
                raise RepositoryInUse(row.full_name, tasks=tasks)
            await rows.mark_removed(row)
            row.envs_sealed = None
            await JobRepository(session).remove(REPOSITORY, repository_id)
            if row.prepared_snapshot is not None or row.preparation is not None:
                await JobRepository(session).due(PREPARATION, repository_id)

    async def prepare(self, caller: Caller, repository_id: str) -> RepositoryEntry:
        """Read the repository from its forge anew, and request its mirror and its snapshot."""
        async with without_transaction(self._sessions) as session:
            await RepositoryRows(session).get(repository_id, tenant_id=caller.tenant_id)
        await self.refresh(repository_id)
        async with self._sessions.begin() as session:
            row = await RepositoryRows(session).lock(repository_id, tenant_id=caller.tenant_id)
            await JobRepository(session).due(REPOSITORY, repository_id)
            await prepared.request(session, row)
        return await self.get(caller, repository_id)

    async def row(self, repository_id: str) -> Repository:
        """Get a repository of any tenant, also a removed one; for workers."""
        async with without_transaction(self._sessions) as session:
            row = await RepositoryRows(session).find(repository_id)
        if row is None:
            raise RepositoryNotFound(repository_id)
        return row

    async def refresh(self, repository_id: str) -> Repository:
        """Read a repository from its forge; a renamed one is found by redirection and keeps its id."""
        row = await self.row(repository_id)
        adapter = await self._forges.adapter(row.forge_id)
        facts = await adapter.find_repository(row.full_name)
        return await self.observe(repository_id, facts)

    async def observe(self, repository_id: str, facts: RepositoryFacts) -> Repository:
        """Record what the forge says; another repository that took the name changes nothing."""
        async with self._sessions.begin() as session:
            row = await RepositoryRows(session).find(repository_id)
            if row is None or row.external_id != facts.external_id:
                raise RepositoryNotFound(facts.full_name)
            describe(row, facts)
        return row

    async def rename(self, row: Repository, full_name: str) -> Repository:
        """Follow a change of a repository's name at its forge."""
        async with self._sessions.begin() as session:
            row = await RepositoryRows(session).get(row.id, tenant_id=row.tenant_id)
            row.url = row.url.replace(row.full_name, full_name)
            row.full_name = full_name
        return row

    async def pause_triggers(self, repository_id: str, *, reason: str) -> None:
        """Stop starting tasks by webhook until a caller resumes it."""
        async with self._sessions.begin() as session:
            row = await RepositoryRows(session).find(repository_id)
            if row is not None and row.triggers_paused_reason is None:
                row.triggers_paused_reason = reason

    async def note_look(self, repository_id: str, name: str, look: Mapping[str, Any]) -> None:
        """Record up to when the labels or mentions of a repository were read."""
        async with self._sessions.begin() as session:
            row = await RepositoryRows(session).find(repository_id)
            if row is not None:
                row.trigger_looks = {**row.trigger_looks, name: dict(look)}

    def settings_of(self, row: Repository) -> RepositorySettings:
        return RepositorySettings.of(row.settings)

    def envs_of(self, row: Repository) -> dict[str, str]:
        """Decrypt the variables for setup, checks and agents."""
        if row.envs_sealed is None:
            return {}
        content = self._vault.decrypt(row.envs_sealed, context=_context(row.id))
        envs: dict[str, str] = json.loads(content)
        return envs

    def _begin(self, row: Repository, facts: RepositoryFacts, wanted: RepositoryChanges) -> None:
        describe(row, facts)
        row.removed_at, row.settings, row.triggers_paused_reason = None, {}, None
        row.trigger_looks = {}
        self._change(row, wanted)

    def _change(self, row: Repository, changes: RepositoryChanges) -> None:
        merged = {**row.settings, **changes.settings}
        row.settings = {name: value for name, value in merged.items() if value is not None}
        if changes.envs is not None:
            row.envs_sealed = self._seal(row.id, changes.envs)
        if changes.triggers_paused is not None:
            row.triggers_paused_reason = _PAUSED_BY_USER if changes.triggers_paused else None

    def _seal(self, repository_id: str, envs: Mapping[str, str]) -> bytes | None:
        if not envs:
            return None
        content = json.dumps(dict(envs)).encode()
        return self._vault.encrypt(content, context=_context(repository_id))

    async def _entries(
        self, session: AsyncSession, rows: Sequence[Repository]
    ) -> list[RepositoryEntry]:
        names = await RepositoryRows(session).names_of_forges(rows)
        return [self._entry(row, names[row.forge_id]) for row in rows]

    def _entry(self, row: Repository, forge: str) -> RepositoryEntry:
        return RepositoryEntry(row, forge, sorted(self.envs_of(row)))


async def _look_for_triggers(session: AsyncSession, row: Repository) -> None:
    """Begin to look for labels and mentions; the look ends by itself where nothing triggers tasks."""
    if "triggers" in row.settings:
        await JobRepository(session).due(TRIGGER_LOOK, row.id)


async def _find_earlier(
    session: AsyncSession, caller: Caller, idempotency: Idempotency | None
) -> str | None:
    return await IdempotencyRepository(session).find(caller.tenant_id, idempotency)


def _context(repository_id: str) -> str:
    return f"repositories.envs/{repository_id}"
