"""Encryption keys for the secrets in the database: from the settings, otherwise from a file in the state directory.

Rotation: put the new key before the old one on every server, re-encrypt, then remove the old key.
"""

import base64
import binascii
import os
import secrets
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import ColumnElement, func, select, union, update
from sqlalchemy.ext.asyncio import AsyncSession
from sqlalchemy.orm import InstrumentedAttribute

from sandbox_server.db.installation import InstallationRepository
from sandbox_server.db.models import (
    BrowserFilePart,
    BrowserRecord,
    DesktopRecordingPart,
    Forge,
    GitPushPart,
    Repository,
    Sandbox,
    TaskLargeFilePart,
    TaskSavePart,
    Template,
    Tenant,
)
from sandbox_server.db.session import Sessions
from sandbox_server.vault import KEY_ID_SLICE, KEY_LENGTH, Vault

_START, _LENGTH = KEY_ID_SLICE.start + 1, KEY_ID_SLICE.stop - KEY_ID_SLICE.start


@dataclass(frozen=True)
class EncryptedColumn:
    """A column of encrypted values; `{context}/{id}` is the associated data of each."""

    id: InstrumentedAttribute[str]
    value: InstrumentedAttribute[bytes] | InstrumentedAttribute[bytes | None]
    context: str


ENCRYPTED_COLUMNS = (
    EncryptedColumn(Sandbox.id, Sandbox.envs_sealed, "sandboxes.envs"),
    EncryptedColumn(Sandbox.id, Sandbox.access_sealed, "sandboxes.access"),
    EncryptedColumn(Sandbox.id, Sandbox.tools_token_sealed, "sandboxes.tools_token"),
    EncryptedColumn(Tenant.id, Tenant.computers_sealed, "tenants.computers"),
    EncryptedColumn(Template.id, Template.definition_sealed, "templates.definition"),
    EncryptedColumn(Repository.id, Repository.envs_sealed, "repositories.envs"),
    EncryptedColumn(Forge.id, Forge.secret_sealed, "forges.secret"),
    EncryptedColumn(Forge.id, Forge.webhook_secret_sealed, "forges.webhook_secret"),
    EncryptedColumn(TaskSavePart.id, TaskSavePart.content_sealed, "task_save_parts.content"),
    EncryptedColumn(
        TaskLargeFilePart.id, TaskLargeFilePart.content_sealed, "task_large_file_parts.content"
    ),
    EncryptedColumn(
        BrowserFilePart.id, BrowserFilePart.content_sealed, "browser_file_parts.content"
    ),
    EncryptedColumn(BrowserRecord.id, BrowserRecord.content_sealed, "browser_records.content"),
    EncryptedColumn(
        DesktopRecordingPart.id,
        DesktopRecordingPart.content_sealed,
        "desktop_recording_parts.content",
    ),
    EncryptedColumn(GitPushPart.id, GitPushPart.content_sealed, "git_push_parts.content"),
)

EPHEMERAL = frozenset({("forge_tokens", "token_sealed")})
"""Tables and columns that no rotation re-encrypts: what cannot be decrypted there is requested anew."""


class EncryptedValueRepository:
    """All encrypted values of the database."""

    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def key_ids(self) -> set[str]:
        """List the keys that values in the database are encrypted with."""
        every = [
            select(_key_id(column).label("key_id")).where(column.value.is_not(None))
            for column in ENCRYPTED_COLUMNS
        ]
        found = await self._session.scalars(select(union(*every).subquery().c.key_id))
        return set(found.all())

    async def list_stale(
        self, column: EncryptedColumn, *, key_id: str, after: str, limit: int
    ) -> Sequence[tuple[str, bytes]]:
        """List the values, by row id, that are encrypted with a key other than this one."""
        stale = (
            select(column.id, column.value)
            .where(column.id > after, _key_id(column) != key_id)
            .order_by(column.id)
            .limit(limit)
        )
        rows = await self._session.execute(stale)
        return [(row_id, value) for row_id, value in rows if value is not None]

    async def replace(
        self, column: EncryptedColumn, row_id: str, *, old: bytes, new: bytes
    ) -> None:
        """Replace a value unless it has changed since it was read."""
        await self._session.execute(
            update(column.value.class_)
            .where(column.id == row_id, column.value == old)
            .values({column.value.key: new})
        )


def _key_id(column: EncryptedColumn) -> ColumnElement[str]:
    return func.encode(func.substring(column.value, _START, _LENGTH), "hex")


KEY_FILE = "encryption.key"
VARIABLE = "SANDBOX_SERVER_ENCRYPTION_KEYS"

_BATCH = 200
_PRIVATE = 0o600


class EncryptionKeyMissing(RuntimeError):
    """The keys at hand cannot decrypt every secret in the database."""


class InvalidEncryptionKey(ValueError):
    """The key is malformed, or its file is not private."""


def new_key() -> str:
    return base64.b64encode(secrets.token_bytes(KEY_LENGTH)).decode()


def read_keys(text: str) -> list[bytes]:
    """Read base64 keys separated by commas or white space; the first one encrypts."""
    return [_read_key(word) for word in text.replace(",", " ").split()]


async def open_vault(sessions: Sessions, *, keys: Sequence[bytes], state_dir: Path) -> Vault:
    """Open the vault of this database; generates a key if nothing was ever encrypted."""
    async with sessions.begin() as session:
        current_key = (await InstallationRepository(session).find_or_make()).encryption_key_id
    file = state_dir / KEY_FILE
    vault = Vault(keys or _read_file(file) or _make_file(file, current_key=current_key))
    async with sessions.begin() as session:
        await InstallationRepository(session).set_first_key(vault.key_id)
    await _require_all_keys(sessions, vault, file)
    return vault


async def reencrypt(sessions: Sessions, vault: Vault) -> int:
    """Re-encrypt all values with the vault's current key while servers keep running; returns their number."""
    count = sum([await _reencrypt_column(sessions, vault, column) for column in ENCRYPTED_COLUMNS])
    async with sessions.begin() as session:
        used = await EncryptedValueRepository(session).key_ids()
        if used <= {vault.key_id}:
            await InstallationRepository(session).set_key(vault.key_id)
            return count
    raise EncryptionKeyMissing(
        "A server still encrypts with another key. Configure the current key as the first key on all servers."
    )


async def _reencrypt_column(sessions: Sessions, vault: Vault, column: EncryptedColumn) -> int:
    count, after = 0, ""
    while True:
        async with sessions.begin() as session:
            repository = EncryptedValueRepository(session)
            stale = await repository.list_stale(
                column, key_id=vault.key_id, after=after, limit=_BATCH
            )
            for row_id, old in stale:
                new = _reencrypt(vault, old, context=f"{column.context}/{row_id}")
                await repository.replace(column, row_id, old=old, new=new)
        if not stale:
            return count
        count, after = count + len(stale), stale[-1][0]


def _reencrypt(vault: Vault, sealed: bytes, *, context: str) -> bytes:
    return vault.encrypt(vault.decrypt(sealed, context=context), context=context)


async def _require_all_keys(sessions: Sessions, vault: Vault, file: Path) -> None:
    async with sessions() as session:
        first = (await InstallationRepository(session).find_or_make()).encryption_key_id
        used = await EncryptedValueRepository(session).key_ids() | ({first} if first else set())
    missing = sorted(key_id for key_id in used if not vault.has_key(key_id))
    if missing:
        raise EncryptionKeyMissing(_explain_missing(missing, file))


def _explain_missing(missing: Sequence[str], file: Path) -> str:
    return (
        f"Secrets in the database are encrypted with the key {', '.join(missing)}, which is missing. "
        f"Add it to {VARIABLE} (the same on all servers, the current key first), or restore {file} "
        "from a backup."
    )


def _read_key(word: str) -> bytes:
    try:
        key = base64.b64decode(word, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_LENGTH:
        raise InvalidEncryptionKey(f"An encryption key must be {KEY_LENGTH} bytes in base64.")
    return key


def _read_file(file: Path) -> list[bytes]:
    if not file.exists():
        return []
    if stat.S_IMODE(file.stat().st_mode) & 0o077:
        raise InvalidEncryptionKey(f"{file} is readable by other users. Run `chmod 600 {file}`.")
    keys = read_keys(file.read_text())
    if not keys:
        raise InvalidEncryptionKey(f"{file} is empty. Restore it from a backup.")
    return keys


def _make_file(file: Path, *, current_key: str | None) -> list[bytes]:
    if current_key is not None:
        raise EncryptionKeyMissing(_explain_missing([current_key], file))
    fresh = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _PRIVATE)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(f"{new_key()}\n")
        opened.flush()
        os.fsync(descriptor)
    try:
        os.link(fresh, file)  # if another server was first, its key is used
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    return _read_file(file)
