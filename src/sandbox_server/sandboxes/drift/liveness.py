import asyncio
import logging
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import Sessions
from sandbox_server.domain.errors import BackendError, BackendUnavailable, SandboxNotFound
from sandbox_server.domain.events import PROVIDER, Answering, Cause, Silent
from sandbox_server.domain.explanations import format_instant
from sandbox_server.domain.state import State
from sandbox_server.log.events import EventRepository
from sandbox_server.providers.protocol.provider import Access, ReportedState
from sandbox_server.providers.registry import Backend
from sandbox_server.sandboxes.drift.for_each_limited import for_each_limited
from sandbox_server.sandboxes.drift.repository import DriftRepository
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository
from sandbox_server.sandboxes.services.encrypted_columns import open_access
from sandbox_server.vault import Vault

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LivenessTimeouts:
    """How long sandboxes have to answer."""

    each: timedelta = timedelta(seconds=5)
    between: timedelta = timedelta(seconds=3)
    """Delay before a sandbox without an answer is asked once more."""
    all: timedelta = timedelta(seconds=30)
    """Sandboxes not reached by then are asked at the next check; silent ones come last."""


TIMEOUTS = LivenessTimeouts()


@dataclass(frozen=True)
class _Running:
    """The columns of a running sandbox that a liveness check needs."""

    id: str
    generation: int
    access_sealed: bytes | None
    silent: bool


class LivenessChecker:
    """Asks running sandboxes for an answer, and records those that give none."""

    def __init__(
        self, sessions: Sessions, vault: Vault, *, timeouts: LivenessTimeouts = TIMEOUTS
    ) -> None:
        self._sessions = sessions
        self._vault = vault
        self._patience = timeouts
        self._heard: dict[str, dict[str, float]] = {}
        """When each sandbox of a backend last answered this server, by the event loop's clock."""

    async def check(self, backend: Backend) -> None:
        """Ask every sandbox that runs at a backend."""
        async with self._sessions() as session:
            rows = await DriftRepository(session).list_running(backend.name)

        before = self._heard.get(backend.name, {})
        heard = {row.id: before[row.id] for row in rows if row.id in before}
        self._heard[backend.name] = heard

        async def ask(one: _Running) -> None:
            silent = await self._is_silent(backend, one)
            if silent is not None and silent is not one.silent:
                await self._note(one, silent=silent, heard_at=heard.get(one.id))
            if silent is False:
                heard[one.id] = asyncio.get_running_loop().time()

        with suppress(TimeoutError):
            async with asyncio.timeout(self._patience.all.total_seconds()):
                await for_each_limited([_Running(*row) for row in rows], ask)

    async def _is_silent(self, backend: Backend, one: _Running) -> bool | None:
        """Ask the sandbox, then its provider; None means unknown."""
        if one.access_sealed is None:
            return None
        access = open_access(self._vault, one.id, one.access_sealed)
        if await self._answers(backend, access):
            return False
        if not one.silent:
            await asyncio.sleep(self._patience.between.total_seconds())
            if await self._answers(backend, access):
                return False
        try:
            found = await backend.info(access.provider_id)
        except BackendError:
            return None
        return True if found.state is ReportedState.RUNNING else None

    async def _answers(self, backend: Backend, access: Access) -> bool:
        try:
            return await backend.is_answering(access, limit=self._patience.each)
        except BackendUnavailable:
            return False

    async def _note(self, seen: _Running, *, silent: bool, heard_at: float | None) -> None:
        async with self._sessions.begin() as session:
            try:
                row, now = await SandboxRepository(session).lock(seen.id)
            except SandboxNotFound:
                return
            if row.generation != seen.generation or row.state is not State.RUNNING:
                return
            last = now - _since(heard_at) if heard_at is not None else None
            event = _become_silent(row, now, heard_at=last) if silent else _answer_again(row)
            await EventRepository(session).append(row.tenant_id, event)
        log.warning("sandbox %s id=%s", "is silent" if silent else "answers again", row.id)


def _since(instant: float) -> timedelta:
    return timedelta(seconds=asyncio.get_running_loop().time() - instant)


def _become_silent(row: Sandbox, now: datetime, *, heard_at: datetime | None) -> Silent:
    row.silent_since = now
    row.state_reason = f"Running, but not responding since {format_instant(heard_at or now)}."
    return Silent(
        sandbox_id=row.id,
        cause=Cause.PROVIDER,
        actor=PROVIDER,
        reason=row.state_reason,
        last_answer_at=heard_at,
    )


def _answer_again(row: Sandbox) -> Answering:
    row.silent_since = None
    row.state_reason = "Responding again."
    return Answering(
        sandbox_id=row.id, cause=Cause.PROVIDER, actor=PROVIDER, reason=row.state_reason
    )
