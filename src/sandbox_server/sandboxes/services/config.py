import logging
import secrets
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import SandboxError
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.state import ENDED, State
from sandbox_server.jobs.kinds import SERVICES
from sandbox_server.jobs.repository import JobRepository
from sandbox_server.providers.protocol.provider import Access
from sandbox_server.providers.registry import Backends
from sandbox_server.proxy.targets import PublicAddress
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository
from sandbox_server.sandboxes.services.sealed import open_access, open_tools_token, seal_tools_token
from sandbox_server.sandboxes.services.settings import ServiceSettings, settings_of
from sandbox_server.sandboxes.services.settings_file import put_settings
from sandbox_server.vault import Vault

log = logging.getLogger(__name__)

_TOKEN_BYTES = 32
_SOON = timedelta(seconds=0.5)
_NOTHING: Mapping[str, Any] = {}


class ServiceConfigWriter:
    """Tells the services in sandboxes what they are to know, in a file that they read.

    It is there before a sandbox is said to run, and again whenever something else is to be in it. What is in it is known by
    a digest in the sandbox's row, which is kept only once the file is written: so a server that dies in between leaves
    nothing but work to its successor, and to write again does no harm.
    """

    def __init__(
        self,
        sessions: Sessions,
        backends: Backends,
        vault: Vault,
        public: PublicAddress | None = None,
    ) -> None:
        self._sessions = sessions
        self._backends = backends
        self._vault = vault
        self._public = public

    async def write(self, row: Sandbox, access: Access) -> Mapping[str, Any]:
        """Write the settings of a sandbox that is about to run; gives what its row has to know of that.

        One that takes none runs nevertheless: its job tries again.
        """
        if not row.has_services:
            return _NOTHING
        settings = self._settings(row, await self.token(row))
        digest = settings.digest(access.provider_id)
        if digest != row.services_digest:
            try:
                await self._put(row, access, settings)
            except SandboxError as error:
                log.warning("settings not written sandbox_id=%s error=%s", row.id, error)
                return {"services_digest": None}
        return {"services_digest": digest}

    async def update(self, job: LeasedJob) -> datetime | None:
        """Write the settings of a sandbox that runs, if they are not what is in its file."""
        async with without_transaction(self._sessions) as session:
            found = await SandboxRepository(session).find(job.subject)
        if found is None:
            return None
        row, now = found
        if row.state in {State.STARTING, State.RESUMING}:  # begun, perhaps, with the old ones
            return now + _SOON
        if row.state is not State.RUNNING or not row.has_services:
            return None
        assert row.backend is not None
        self._backends[row.backend].enter()
        await self.rewrite(row, unless_there=True)
        return None

    async def invalidate(self, sandbox_id: str) -> None:
        """Have a sandbox's settings written again, which somebody may have replaced with older ones by now."""
        async with self._sessions.begin() as session:
            await SandboxRepository(session).invalidate_settings(sandbox_id)
            await JobRepository(session).due(SERVICES, sandbox_id)

    async def token(self, row: Sandbox) -> str:
        """Give the secret that a sandbox's services ask for; it is made at first use, one for all servers."""
        if row.tools_token_sealed is not None:
            return open_tools_token(self._vault, row.id, row.tools_token_sealed)
        made = seal_tools_token(self._vault, row.id, secrets.token_urlsafe(_TOKEN_BYTES))
        async with without_transaction(self._sessions) as session:
            kept = await SandboxRepository(session).keep_tools_token(row.id, made)
        return open_tools_token(self._vault, row.id, kept)

    async def rewrite(self, row: Sandbox, *, unless_there: bool = False) -> None:
        """Put a running sandbox's settings where its services read them, be they there already or not."""
        token = await self.token(row)
        while row.state not in ENDED and row.access_sealed is not None:
            access = open_access(self._vault, row.id, row.access_sealed)
            settings = self._settings(row, token)
            digest = settings.digest(access.provider_id)
            if unless_there and digest == row.services_digest:
                return
            await self._put(row, access, settings)
            fresh = await self._note(row, digest)
            if fresh is None:
                return
            row = fresh

    async def _put(self, row: Sandbox, access: Access, settings: ServiceSettings) -> None:
        assert row.backend is not None
        await put_settings(self._backends[row.backend].processes(access), settings.content)

    def _settings(self, row: Sandbox, token: str) -> ServiceSettings:
        return settings_of(row, token, vault=self._vault, public=self._public)

    async def _note(self, written: Sandbox, digest: bytes) -> Sandbox | None:
        """Keep what is in the file; gives the row anew if something else is to be in it by now."""
        if not written.has_services:
            return None
        async with without_transaction(self._sessions) as session:
            sandboxes = SandboxRepository(session)
            if await sandboxes.note_settings(written, digest):
                return None
            found = await sandboxes.find(written.id)
        return None if found is None else found[0]
