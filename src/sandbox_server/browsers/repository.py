from collections.abc import Collection, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncSession

from sandbox_server.db.models import BrowserDriver, BrowserSession
from sandbox_server.domain.computers.browsers import SessionState
from sandbox_server.domain.errors import BrowserSessionNotFound

_now = func.clock_timestamp()


class BrowserSessionRepository:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def add(self, row: BrowserSession) -> None:
        self._session.add(row)
        await self._session.flush()

    async def get(self, session_id: str, *, tenant_id: str) -> BrowserSession:
        row = await self._session.scalar(
            select(BrowserSession).where(
                BrowserSession.id == session_id, BrowserSession.tenant_id == tenant_id
            )
        )
        if row is None:
            raise BrowserSessionNotFound(session_id)
        return row

    async def get_of_sandbox(self, sandbox_id: str) -> BrowserSession:
        """Get the session that a sandbox was created for."""
        found = await self._session.scalars(
            select(BrowserSession).where(BrowserSession.sandbox_id == sandbox_id)
        )
        return found.one()

    async def find(self, session_id: str) -> BrowserSession | None:
        """Find a session of any tenant."""
        return await self._session.get(BrowserSession, session_id)

    async def find_writer(self, context_id: str, *, tenant_id: str) -> str | None:
        """Find the session that may still write to a context."""
        return await self._session.scalar(
            select(BrowserSession.id).where(
                BrowserSession.context_id == context_id,
                BrowserSession.tenant_id == tenant_id,
                BrowserSession.context_persist,
                BrowserSession.finished_at.is_(None),
            )
        )

    async def lock(
        self, session_id: str, *, tenant_id: str | None = None
    ) -> tuple[BrowserSession, datetime]:
        """Lock the row until the transaction ends; returns it with the database's clock."""
        locked = select(BrowserSession, _now).where(BrowserSession.id == session_id)
        if tenant_id is not None:
            locked = locked.where(BrowserSession.tenant_id == tenant_id)
        locked = locked.with_for_update().execution_options(populate_existing=True)
        found = (await self._session.execute(locked)).one_or_none()
        if found is None:
            raise BrowserSessionNotFound(session_id)
        return found[0], found[1]

    async def list_page(
        self,
        tenant_id: str,
        *,
        states: Collection[SessionState],
        labels: dict[str, Any],
        limit: int,
        before: str | None = None,
    ) -> Sequence[BrowserSession]:
        """List sessions in these states, newest first; without states all of them."""
        query = select(BrowserSession).where(BrowserSession.tenant_id == tenant_id)
        if states:
            query = query.where(BrowserSession.state.in_(states))
        if labels:
            query = query.where(BrowserSession.labels.contains(labels))
        if before is not None:
            query = query.where(BrowserSession.id < before)
        page = await self._session.scalars(query.order_by(BrowserSession.id.desc()).limit(limit))
        return page.all()

    async def find_driven_until(self, session_id: str) -> datetime | None:
        """Find until when a server vouches for a connected driver."""
        return await self._session.scalar(
            select(func.max(BrowserDriver.until)).where(BrowserDriver.session_id == session_id)
        )
