import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta

from sandbox_server.backends.e2b import E2BBackend
from sandbox_server.backends.provider import Access, ProviderState
from sandbox_server.db.events import EventRepository
from sandbox_server.db.models import Sandbox
from sandbox_server.db.patrol import PatrolRepository
from sandbox_server.db.sandboxes import SandboxRepository
from sandbox_server.db.session import Sessions
from sandbox_server.domain.errors import BackendError, BackendUnavailable, SandboxNotFound
from sandbox_server.domain.events import PROVIDER, Answering, Cause, Silent
from sandbox_server.domain.state import State
from sandbox_server.domain.wording import clock
from sandbox_server.lifecycle.crowd import for_each
from sandbox_server.lifecycle.sealed import open_access
from sandbox_server.vault import Vault

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long sandboxes have to answer."""

    each: timedelta = timedelta(seconds=5)
    between: timedelta = timedelta(seconds=3)
    """After this long one that did not answer is asked once more."""
    all: timedelta = timedelta(seconds=30)
    """Who has not had a turn by then has it the next time: those found silent come last."""


PATIENCE = Patience()


class Silence:
    """Asks running sandboxes for a sign of life, and writes down who gives none."""

    def __init__(self, sessions: Sessions, vault: Vault, *, patience: Patience = PATIENCE) -> None:
        self._sessions = sessions
        self._vault = vault
        self._patience = patience

    async def listen(self, backend: E2BBackend) -> None:
        """Ask all that run at a backend."""
        async with self._sessions() as session:
            rows = await PatrolRepository(session).list_running(backend.name)

        async def ask(row: Sandbox) -> None:
            silent = await self._is_silent(backend, row)
            if silent is not None and silent is (row.silent_since is None):
                await self._note(row, silent=silent)

        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience.all.total_seconds()):
                await for_each(rows, ask)

    async def _is_silent(self, backend: E2BBackend, row: Sandbox) -> bool | None:
        """Ask the sandbox, and then its provider, who may know better than we; None is that nobody knows."""
        assert row.access_sealed is not None
        access = open_access(self._vault, row.id, row.access_sealed)
        if await self._answers(backend, access):
            return False
        if row.silent_since is None:
            await asyncio.sleep(self._patience.between.total_seconds())
            if await self._answers(backend, access):
                return False
        try:
            found = await backend.info(access.provider_id, limit=self._patience.each)
        except BackendError:
            return None
        return True if found.state is ProviderState.RUNNING else None

    async def _answers(self, backend: E2BBackend, access: Access) -> bool:
        try:
            return await backend.is_answering(access, limit=self._patience.each)
        except BackendUnavailable:
            return False

    async def _note(self, seen: Sandbox, *, silent: bool) -> None:
        async with self._sessions.begin() as session:
            repository = SandboxRepository(session)
            try:
                row, now = await repository.lock(seen.id)
            except SandboxNotFound:
                return
            if row.generation != seen.generation or row.state is not State.RUNNING:
                return
            event: Silent | Answering
            if silent:
                row.silent_since = now
                row.state_reason = f"It runs, and has not answered since {clock(now)}."
                event = Silent(
                    sandbox_id=row.id,
                    cause=Cause.PROVIDER,
                    actor=PROVIDER,
                    reason=row.state_reason,
                    last_answer_at=None,
                )
            else:
                row.silent_since = None
                row.state_reason = "It answers again."
                event = Answering(
                    sandbox_id=row.id, cause=Cause.PROVIDER, actor=PROVIDER, reason=row.state_reason
                )
            await EventRepository(session).append(row.tenant_id, event)
        log.warning("sandbox %s id=%s", "is silent" if silent else "answers again", row.id)
