from datetime import datetime
from typing import Any

from sandbox_server.db.models import Sandbox
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository


class RequestedCheckouts:
    """The checkouts that sandboxes were created with, and how far they are."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def find(self, sandbox_id: str) -> tuple[Sandbox, datetime] | None:
        """Find a sandbox, with the database's clock."""
        async with without_transaction(self._sessions) as session:
            return await SandboxRepository(session).find(sandbox_id)

    async def note_ready(self, sandbox_id: str, *, commit: str, reason: str | None = None) -> None:
        """Note that a checkout is there; the reason is why large files in it stay pointers."""
        await self._note(sandbox_id, state="ready", commit=commit, reason=reason)

    async def note_failed(self, sandbox_id: str, *, reason: str) -> None:
        await self._note(sandbox_id, state="failed", reason=reason)

    async def _note(self, sandbox_id: str, **changes: Any) -> None:
        async with self._sessions.begin() as session:
            await SandboxRepository(session).update_checkout(sandbox_id, changes)
