from dataclasses import dataclass, replace

from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.requests import SandboxRequest
from sandbox_server.sandboxes.creation import Creation
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository
from sandbox_server.sandboxes.template_lookup import Offer, TemplateLookup


@dataclass(frozen=True)
class SessionSandbox:
    """A session's sandbox, and whether it has just been made."""

    row: Sandbox
    created: bool


class SessionSandboxes:
    """Gives each session one sandbox, however many ask at once, and on whichever server."""

    def __init__(self, sessions: Sessions, creation: Creation, lookup: TemplateLookup) -> None:
        self._sessions = sessions
        self._creation = creation
        self._lookup = lookup

    async def find_or_add(
        self, caller: Caller, session_id: str, wanted: SandboxRequest
    ) -> SessionSandbox:
        """Find the session's sandbox as it is, else write one down and begin to start it."""
        async with without_transaction(self._sessions) as session:
            repository = SandboxRepository(session)
            found = await repository.find_of_session(caller.tenant_id, session_id)
        if found is not None:
            return SessionSandbox(found, created=False)
        return await self._lookup.attempt(
            lambda offer: self._find_or_add_alone(caller, session_id, wanted, offer)
        )

    async def _find_or_add_alone(
        self, caller: Caller, session_id: str, wanted: SandboxRequest, offer: Offer | None
    ) -> SessionSandbox:
        async with self._sessions.begin() as session:
            repository = SandboxRepository(session)
            await repository.lock_session(caller.tenant_id, session_id)
            found = await repository.find_of_session(caller.tenant_id, session_id)
            if found is not None:
                return SessionSandbox(found, created=False)
            mine = replace(wanted, session_id=session_id)
            begun = await self._creation.add(
                session, caller, mine, sandbox_id=new_id(), offer=offer
            )
        self._creation.begin(begun)
        return SessionSandbox(begun.row, created=True)
