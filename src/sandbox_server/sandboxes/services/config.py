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
from sandbox_server.sandboxes.services.encrypted_columns import (
    open_access,
    open_tools_token,
    seal_tools_token,
)
from sandbox_server.sandboxes.services.settings import ServiceSettings, settings_of
from sandbox_server.sandboxes.services.settings_file import put_settings
from sandbox_server.vault import Vault

log = logging.getLogger(__name__)

_TOKEN_BYTES = 32
_SOON = timedelta(seconds=0.5)
_NOTHING: Mapping[str, Any] = {}


class ServiceConfigWriter:
    """Writes the settings file of the services in sandboxes.

    The file is written before a sandbox becomes `running`, and again whenever its content changes. The row has a digest
    of the written content, stored after the file: if a server crashes in between, another one writes the file again.
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
        """Write the settings of a sandbox before it becomes `running`; returns columns of its row.

        If that fails the sandbox runs nevertheless, and its job retries.
        """
        if not row.has_services:
            return _NOTHING
        if not self._reads_settings(
            row
        ):  # its template has services, which this backend does not run
            return {"has_services": False}
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
        """Write the settings of a running sandbox, if they have changed."""
        async with without_transaction(self._sessions) as session:
            found = await SandboxRepository(session).find(job.subject)
        if found is None:
            return None
        row, now = found
        if row.state in {State.STARTING, State.RESUMING}:  # may have started with the old settings
            return now + _SOON
        if row.state is not State.RUNNING or not self._reads_settings(row):
            return None
        assert row.backend is not None
        self._backends[row.backend].enter()
        await self.rewrite(row, unless_there=True)
        return None

    async def invalidate(self, sandbox_id: str) -> None:
        """Write the settings again later: another process may have replaced them with older ones."""
        async with self._sessions.begin() as session:
            await SandboxRepository(session).invalidate_settings(sandbox_id)
            await JobRepository(session).due(SERVICES, sandbox_id)

    async def token(self, row: Sandbox) -> str:
        """Return the token that a sandbox's services require; created at first use, shared by all servers."""
        if row.tools_token_sealed is not None:
            return open_tools_token(self._vault, row.id, row.tools_token_sealed)
        made = seal_tools_token(self._vault, row.id, secrets.token_urlsafe(_TOKEN_BYTES))
        async with without_transaction(self._sessions) as session:
            kept = await SandboxRepository(session).keep_tools_token(row.id, made)
        return open_tools_token(self._vault, row.id, kept)

    async def rewrite(self, row: Sandbox, *, unless_there: bool = False) -> None:
        """Write the settings of a running sandbox, even if they are unchanged."""
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

    def _reads_settings(self, row: Sandbox) -> bool:
        is_limited = row.backend is not None and self._backends.limited_to(row.backend) is not None
        return row.has_services and not is_limited

    async def _put(self, row: Sandbox, access: Access, settings: ServiceSettings) -> None:
        assert row.backend is not None
        await put_settings(self._backends[row.backend].processes(access), settings.content)

    def _settings(self, row: Sandbox, token: str) -> ServiceSettings:
        return settings_of(row, token, vault=self._vault, public=self._public)

    async def _note(self, written: Sandbox, digest: bytes) -> Sandbox | None:
        """Store the digest of the file; returns the current row if the settings have changed since."""
        if not written.has_services:
            return None
        async with without_transaction(self._sessions) as session:
            sandboxes = SandboxRepository(session)
            if await sandboxes.note_settings(written, digest):
                return None
            found = await sandboxes.find(written.id)
        return None if found is None else found[0]
