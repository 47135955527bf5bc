import asyncio
from collections.abc import Sequence

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import BrowserFilePart
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.ids import new_id
from sandbox_server.vault import Vault

_PART = 2**20


class BrowserFiles:
    """Files of contexts, extensions and ended sessions, encrypted in the database: one for each owner."""

    def __init__(self, sessions: Sessions, vault: Vault) -> None:
        self._sessions = sessions
        self._vault = vault

    async def write(self, owner_id: str, content: bytes) -> None:
        """Store a file, in place of the owner's earlier one."""
        parts = await asyncio.to_thread(self._seal, owner_id, content)
        async with self._sessions.begin() as session:
            await remove_files(session, [owner_id])
            for part in parts:
                session.add(part)
                await session.flush()

    async def add(self, session: AsyncSession, owner_id: str, content: bytes) -> None:
        """Store a small file in the caller's transaction."""
        session.add_all(self._seal(owner_id, content))
        await session.flush()

    async def find(self, owner_id: str) -> bytes | None:
        """Find the file of an owner."""
        mine = select(BrowserFilePart).where(BrowserFilePart.owner_id == owner_id)
        async with without_transaction(self._sessions) as session:
            parts = (await session.scalars(mine.order_by(BrowserFilePart.part))).all()
        return await asyncio.to_thread(self._open, parts) if parts else None

    def _seal(self, owner_id: str, content: bytes) -> list[BrowserFilePart]:
        return [
            self._part(owner_id, part, content[start : start + _PART])
            for part, start in enumerate(range(0, max(len(content), 1), _PART))
        ]

    def _part(self, owner_id: str, part: int, content: bytes) -> BrowserFilePart:
        part_id = new_id()
        sealed = self._vault.encrypt(content, context=_context(part_id))
        return BrowserFilePart(id=part_id, owner_id=owner_id, part=part, content_sealed=sealed)

    def _open(self, parts: Sequence[BrowserFilePart]) -> bytes:
        return b"".join(
            self._vault.decrypt(each.content_sealed, context=_context(each.id)) for each in parts
        )


async def remove_files(session: AsyncSession, owner_ids: Sequence[str]) -> None:
    """Remove the files of these owners."""
    theirs = BrowserFilePart.owner_id.in_(owner_ids)
    await session.execute(delete(BrowserFilePart).where(theirs))


def _context(part_id: str) -> str:
    return f"browser_file_parts.content/{part_id}"
