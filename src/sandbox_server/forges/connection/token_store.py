"""Tokens minted for repositories, encrypted, shared by all servers until they expire."""

from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, delete, func, select
from sqlalchemy.dialects.postgresql import insert

from sandbox_server.db.models import ForgeToken
from sandbox_server.db.session import Sessions
from sandbox_server.vault import DecryptionFailed, Vault

RENEWED_BEFORE = timedelta(minutes=5)
"""A token is minted anew this long before it expires, so that no push outlives its token."""


@dataclass(frozen=True, kw_only=True)
class MintedToken:
    value: str = field(repr=False)
    expires_at: datetime | None
    """None: a token as it was given, which is not renewed."""


class TokenStore:
    def __init__(self, sessions: Sessions, vault: Vault) -> None:
        self._sessions = sessions
        self._vault = vault

    async def now(self) -> datetime:
        """Return the database's time: a server's own clock may be wrong."""
        async with self._sessions() as session:
            now: datetime = (await session.execute(select(func.clock_timestamp()))).scalar_one()
        return now

    async def find(self, forge_id: str, repository: str, access: str) -> MintedToken | None:
        """Find a token that is valid for some minutes still."""
        async with self._sessions() as session:
            row = await session.scalar(
                select(ForgeToken).where(
                    *_row(forge_id, repository, access),
                    ForgeToken.expires_at > func.clock_timestamp() + RENEWED_BEFORE,
                )
            )
        if row is None:
            return None
        try:
            value = self._vault.decrypt(
                row.token_sealed, context=_context(forge_id, repository, access)
            )
        except DecryptionFailed:  # the encryption key was replaced: the token is minted anew
            return None
        return MintedToken(value=value.decode(), expires_at=row.expires_at)

    async def put(self, forge_id: str, repository: str, access: str, token: MintedToken) -> None:
        sealed = self._vault.encrypt(
            token.value.encode(), context=_context(forge_id, repository, access)
        )
        values = {"token_sealed": sealed, "expires_at": token.expires_at}
        key = {"forge_id": forge_id, "repository": repository, "access": access}
        async with self._sessions.begin() as session:
            await session.execute(
                insert(ForgeToken)
                .values(**key, **values)
                .on_conflict_do_update(index_elements=list(key), set_=values)
            )

    async def remove(self, forge_id: str, repository: str, access: str) -> None:
        async with self._sessions.begin() as session:
            await session.execute(delete(ForgeToken).where(*_row(forge_id, repository, access)))


def _row(forge_id: str, repository: str, access: str) -> tuple[ColumnElement[bool], ...]:
    return (
        ForgeToken.forge_id == forge_id,
        ForgeToken.repository == repository,
        ForgeToken.access == access,
    )


def _context(forge_id: str, repository: str, access: str) -> str:
    return f"forge_tokens.token/{forge_id}/{repository}/{access}"
