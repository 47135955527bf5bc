from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

from sandbox_server.db.models import Event
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.events.log_source import LogKind, LogSource
from sandbox_server.log.event_repository import EVERY_EVENT, EventFilter
from sandbox_server.log.events import EventRepository
from sandbox_server.log.source import Page
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository


class ServiceLogRecorder(Protocol):
    """Records the log files of services while they are followed."""

    def followed(
        self, caller: Caller, sandbox_ids: Sequence[str]
    ) -> AbstractContextManager[None]: ...


class Timelines:
    """Events and merged logs of sandboxes."""

    def __init__(self, sessions: Sessions, service_logs: ServiceLogRecorder) -> None:
        self._sessions = sessions
        self._service_logs = service_logs

    async def list_events(
        self,
        caller: Caller,
        *,
        sandbox_id: str | None = None,
        event_filter: EventFilter = EVERY_EVENT,
        after: int,
        limit: int,
    ) -> Sequence[Event]:
        """List events of the caller's sandboxes, or of one that must exist."""
        async with without_transaction(self._sessions) as session:
            if sandbox_id is not None:
                await SandboxRepository(session).get(sandbox_id, tenant_id=caller.tenant_id)
            return await EventRepository(session).list_page(
                caller.tenant_id,
                sandbox_id=sandbox_id,
                event_filter=event_filter,
                after=after,
                limit=limit,
            )

    async def require_sandboxes(self, caller: Caller, *sandbox_ids: str) -> None:
        """Raise unless all of these sandboxes exist and belong to the caller's tenant."""
        async with without_transaction(self._sessions) as session:
            for sandbox_id in sandbox_ids:
                await SandboxRepository(session).get(sandbox_id, tenant_id=caller.tenant_id)

    async def read_log(self, source: LogSource, *, after: int, limit: int) -> Page:
        return await source.read(self._sessions, after=after, limit=limit)

    def recording(self, caller: Caller, source: LogSource) -> AbstractContextManager[None]:
        """Record the logs of services while a stream that shows them is open."""
        if LogKind.SERVICE not in source.kinds:
            return nullcontext()
        return self._service_logs.followed(caller, source.sandbox_ids)
