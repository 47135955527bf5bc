"""The keys that seal secrets in the database: from the settings, else in a file of our own beside it.

Rotation: give every server the new key before the old one, reseal, then take the old one away.
"""

import base64
import binascii
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path

from sandbox_server.access.sealed_repository import SEALED_COLUMNS, SealedColumn, SealedRepository
from sandbox_server.db.installation import InstallationRepository
from sandbox_server.db.session import Sessions
from sandbox_server.vault import KEY_LENGTH, Vault

KEY_FILE = "encryption.key"
VARIABLE = "SANDBOX_SERVER_ENCRYPTION_KEYS"

_BATCH = 200
_PRIVATE = 0o600


class EncryptionKeyMissing(RuntimeError):
    """What is sealed in the database cannot be opened with what keys there are."""


class InvalidEncryptionKey(ValueError):
    """It is no key, or not kept as one."""


def new_key() -> str:
    return base64.b64encode(secrets.token_bytes(KEY_LENGTH)).decode()


def read_keys(text: str) -> list[bytes]:
    """Read keys in base64, separated by commas or white space; the first one seals."""
    return [_read_key(word) for word in text.replace(",", " ").split()]


async def open_vault(sessions: Sessions, *, keys: Sequence[bytes], state_dir: Path) -> Vault:
    """Open the vault of this database, with a key that is made if nothing was ever sealed."""
    async with sessions.begin() as session:
        sealed_with = (await InstallationRepository(session).find_or_make()).encryption_key_id
    file = state_dir / KEY_FILE
    vault = Vault(keys or _read_file(file) or _make_file(file, sealed_with=sealed_with))
    async with sessions.begin() as session:
        await InstallationRepository(session).set_first_key(vault.key_id)
    await _require_all_keys(sessions, vault, file)
    return vault


async def reseal(sessions: Sessions, vault: Vault) -> int:
    """Seal everything with the vault's current key, while servers that have it too go on; gives how much it was."""
    count = sum([await _reseal_column(sessions, vault, column) for column in SEALED_COLUMNS])
    async with sessions.begin() as session:
        used = await SealedRepository(session).key_ids()
        if used <= {vault.key_id}:
            await InstallationRepository(session).set_key(vault.key_id)
            return count
    raise EncryptionKeyMissing(
        "A server still seals with another key. Give the current one to all servers, first of all keys."
    )


async def _reseal_column(sessions: Sessions, vault: Vault, column: SealedColumn) -> int:
    count, after = 0, ""
    while True:
        async with sessions.begin() as session:
            repository = SealedRepository(session)
            stale = await repository.list_stale(
                column, key_id=vault.key_id, after=after, limit=_BATCH
            )
            for row_id, old in stale:
                new = _reseal(vault, old, context=f"{column.context}/{row_id}")
                await repository.replace(column, row_id, old=old, new=new)
        if not stale:
            return count
        count, after = count + len(stale), stale[-1][0]


def _reseal(vault: Vault, sealed: bytes, *, context: str) -> bytes:
    return vault.seal(vault.open(sealed, context=context), context=context)


async def _require_all_keys(sessions: Sessions, vault: Vault, file: Path) -> None:
    async with sessions() as session:
        first = (await InstallationRepository(session).find_or_make()).encryption_key_id
        used = await SealedRepository(session).key_ids() | ({first} if first else set())
    missing = sorted(key_id for key_id in used if not vault.has_key(key_id))
    if missing:
        raise EncryptionKeyMissing(_explain_missing(missing, file))


def _explain_missing(missing: Sequence[str], file: Path) -> str:
    return (
        f"Secrets in the database are sealed with the key {', '.join(missing)}, which is not given. "
        f"Put it into {VARIABLE} (the same on all servers, the current key first), or bring {file} "
        "back from a backup."
    )


def _read_key(word: str) -> bytes:
    try:
        key = base64.b64decode(word, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_LENGTH:
        raise InvalidEncryptionKey(f"An encryption key is {KEY_LENGTH} bytes in base64.")
    return key


def _read_file(file: Path) -> list[bytes]:
    if not file.exists():
        return []
    if stat.S_IMODE(file.stat().st_mode) & 0o077:
        raise InvalidEncryptionKey(f"{file} can be read by others: `chmod 600 {file}`.")
    keys = read_keys(file.read_text())
    if not keys:
        raise InvalidEncryptionKey(f"{file} is empty; bring it back from a backup.")
    return keys


def _make_file(file: Path, *, sealed_with: str | None) -> list[bytes]:
    if sealed_with is not None:
        raise EncryptionKeyMissing(_explain_missing([sealed_with], file))
    fresh = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, _PRIVATE)
    with os.fdopen(descriptor, "w") as opened:
        opened.write(f"{new_key()}\n")
        opened.flush()
        os.fsync(descriptor)
    try:
        os.link(fresh, file)  # who comes second uses the first one's
    except FileExistsError:
        pass
    finally:
        fresh.unlink()
    return _read_file(file)
