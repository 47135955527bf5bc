"""Contexts, which are profiles of browsers, and extensions: what sessions start with."""

import io
import zipfile
from collections.abc import Sequence
from typing import TypeVar

from sqlalchemy import delete, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.browsers.file_parts import BrowserFiles, remove_files
from sandbox_server.db.models import BrowserContext, BrowserExtension, BrowserSession
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.computers.browsers import new_session_id
from sandbox_server.domain.errors import (
    BrowserContextInUse,
    BrowserContextNotFound,
    BrowserExtensionNotFound,
    InvalidRequest,
    NotFound,
)

_LARGEST_UNPACKED = 128 * 2**20
_MANIFEST = "manifest.json"

Content = TypeVar("Content", BrowserContext, BrowserExtension)


class BrowserContexts:
    """Use cases of contexts. The sessions that persist to a context do so one after the other."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    async def create(self, caller: Caller, *, name: str | None) -> BrowserContext:
        """Create a context with an empty profile."""
        row = BrowserContext(id=new_session_id(), tenant_id=caller.tenant_id, name=name)
        return await _add(self._sessions, row)

    async def get(self, caller: Caller, context_id: str) -> BrowserContext:
        async with without_transaction(self._sessions) as session:
            return await _get(
                session, BrowserContext, caller, context_id, missing=BrowserContextNotFound
            )

    async def list_all(self, caller: Caller) -> Sequence[BrowserContext]:
        """List contexts, newest first."""
        own = select(BrowserContext).where(BrowserContext.tenant_id == caller.tenant_id)
        async with without_transaction(self._sessions) as session:
            return (await session.scalars(own.order_by(BrowserContext.id.desc()))).all()

    async def remove(self, caller: Caller, context_id: str) -> None:
        """Delete a context with its profile, unless a session may still write to it."""
        async with self._sessions.begin() as session:
            await require_context(session, caller, context_id, is_persisted=True)
            await session.execute(delete(BrowserContext).where(BrowserContext.id == context_id))
            await remove_files(session, [context_id])


class BrowserExtensions:
    """Use cases of extensions."""

    def __init__(self, sessions: Sessions, files: BrowserFiles) -> None:
        self._sessions = sessions
        self._files = files

    async def create(self, caller: Caller, file_name: str, content: bytes) -> BrowserExtension:
        """Store an extension; its archive must contain a manifest."""
        require_extension(content)
        row = BrowserExtension(id=new_session_id(), tenant_id=caller.tenant_id, file_name=file_name)
        await self._files.write(row.id, content)
        return await _add(self._sessions, row)

    async def get(self, caller: Caller, extension_id: str) -> BrowserExtension:
        async with without_transaction(self._sessions) as session:
            return await _get(
                session, BrowserExtension, caller, extension_id, missing=BrowserExtensionNotFound
            )

    async def remove(self, caller: Caller, extension_id: str) -> None:
        """Delete an extension; sessions that have loaded it keep it."""
        await self.get(caller, extension_id)
        async with self._sessions.begin() as session:
            await session.execute(
                delete(BrowserExtension).where(BrowserExtension.id == extension_id)
            )
            await remove_files(session, [extension_id])


async def require_context(
    session: AsyncSession, caller: Caller, context_id: str, *, is_persisted: bool
) -> None:
    """Require a context, locked until the transaction ends, to which no other session writes."""
    await _get(
        session, BrowserContext, caller, context_id, missing=BrowserContextNotFound, is_locked=True
    )
    writer = select(BrowserSession.id).where(
        BrowserSession.context_id == context_id,
        BrowserSession.context_persist,
        BrowserSession.finished_at.is_(None),
    )
    if is_persisted and await session.scalar(writer.limit(1)) is not None:
        raise BrowserContextInUse(context_id)


async def require_extension_of(session: AsyncSession, caller: Caller, extension_id: str) -> None:
    await _get(session, BrowserExtension, caller, extension_id, missing=BrowserExtensionNotFound)


def require_extension(content: bytes) -> None:
    """Require a zip archive of an extension, which may be in a directory of its own."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = {each.filename for each in archive.infolist()}
            size = sum(each.file_size for each in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        raise InvalidRequest("The file is not a zip archive.") from None
    if size > _LARGEST_UNPACKED:
        raise InvalidRequest("The extension is too large.")
    if not any(name == _MANIFEST or _is_in_directory(name) for name in names):
        raise InvalidRequest("The archive contains no manifest.json.")


def _is_in_directory(name: str) -> bool:
    return name.endswith(f"/{_MANIFEST}") and name.count("/") == 1


async def _add(sessions: Sessions, row: Content) -> Content:
    async with sessions.begin() as session:
        session.add(row)
        await session.flush()
        await session.refresh(row)
    return row


async def _get(
    session: AsyncSession,
    kind: type[Content],
    caller: Caller,
    content_id: str,
    *,
    missing: type[NotFound],
    is_locked: bool = False,
) -> Content:
    own = select(kind).where(kind.id == content_id, kind.tenant_id == caller.tenant_id)
    row = await session.scalar(own.with_for_update() if is_locked else own)
    if row is None:
        raise missing(content_id)
    return row


async def note_saved(session: AsyncSession, context_id: str) -> None:
    """Note that a session has written to a context."""
    row = await session.get(BrowserContext, context_id)
    if row is not None:
        row.updated_at = (await session.execute(select(func.clock_timestamp()))).scalar_one()
