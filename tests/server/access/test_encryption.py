import asyncio
import base64
import secrets

import pytest
from sqlalchemy import select, update

from sandbox_server.access import encryption
from sandbox_server.access.encryption import (
    ENCRYPTED_COLUMNS,
    EPHEMERAL,
    KEY_FILE,
    EncryptionKeyMissing,
    InvalidEncryptionKey,
    new_key,
    open_vault,
    read_keys,
    reencrypt,
)
from sandbox_server.db.models import TABLES, Installation, Sandbox
from sandbox_server.vault import DecryptionFailed, Vault
from tests.server.access.encrypted_values import add_sandboxes, envs_of
from tests.server.support.locks import waiting_for_a_lock


@pytest.fixture
def key():
    return secrets.token_bytes(32)


@pytest.fixture
def newer():
    return secrets.token_bytes(32)


async def test_encryption__the_first_start_generates_a_private_key_file(sessions, tmp_path):
    vault = await open_vault(sessions, keys=[], state_dir=tmp_path)
    file = tmp_path / KEY_FILE
    assert file.stat().st_mode & 0o777 == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == [KEY_FILE]
    again = await open_vault(sessions, keys=[], state_dir=tmp_path)
    assert again.key_id == vault.key_id


async def test_encryption__servers_that_start_concurrently_use_the_same_key(sessions, tmp_path):
    vaults = await asyncio.gather(
        *(open_vault(sessions, keys=[], state_dir=tmp_path) for _ in range(5))
    )
    assert len({vault.key_id for vault in vaults}) == 1


async def test_encryption__keys_from_the_settings_take_precedence_over_the_file(
    sessions, tmp_path, key
):
    vault = await open_vault(sessions, keys=[key], state_dir=tmp_path)
    assert vault.key_id == Vault([key]).key_id
    assert list(tmp_path.iterdir()) == []


async def test_encryption__a_server_without_the_databases_key_does_not_start(
    sessions, tmp_path, key, newer
):
    await open_vault(sessions, keys=[key], state_dir=tmp_path)
    with pytest.raises(EncryptionKeyMissing, match="SANDBOX_SERVER_ENCRYPTION_KEYS"):
        await open_vault(sessions, keys=[newer], state_dir=tmp_path)


async def test_encryption__a_lost_key_file_is_not_replaced(sessions, tmp_path):
    await open_vault(sessions, keys=[], state_dir=tmp_path)
    (tmp_path / KEY_FILE).unlink()
    with pytest.raises(EncryptionKeyMissing, match="backup"):
        await open_vault(sessions, keys=[], state_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


async def test_encryption__a_key_file_readable_by_others_is_rejected(sessions, tmp_path):
    await open_vault(sessions, keys=[], state_dir=tmp_path)
    (tmp_path / KEY_FILE).chmod(0o640)
    with pytest.raises(InvalidEncryptionKey, match="chmod 600"):
        await open_vault(sessions, keys=[], state_dir=tmp_path)


@pytest.mark.parametrize("text", ["short", "!" * 44, base64.b64encode(b"x" * 31).decode()])
def test_encryption__an_invalid_key_is_rejected_without_being_printed(text):
    with pytest.raises(InvalidEncryptionKey) as refused:
        read_keys(text)
    assert text not in str(refused.value)


def test_encryption__keys_are_separated_by_commas_or_newlines():
    one, other = new_key(), new_key()
    assert read_keys(f"{one},{other}") == read_keys(f"{one}\n{other}\n")


async def test_key_rotation__all_values_are_reencrypted(
    sessions, tmp_path, key, newer, monkeypatch
):
    monkeypatch.setattr(encryption, "_BATCH", 2)
    await open_vault(sessions, keys=[key], state_dir=tmp_path)
    ids = await add_sandboxes(sessions, Vault([key]), count=5)
    rotated = await open_vault(sessions, keys=[newer, key], state_dir=tmp_path)
    assert await reencrypt(sessions, rotated) == 10
    await open_vault(sessions, keys=[newer], state_dir=tmp_path)
    assert await envs_of(sessions, Vault([newer]), ids) == [f"envs of {each}" for each in ids]
    assert await reencrypt(sessions, rotated) == 0


async def test_key_rotation__the_old_key_is_required_until_rotation_completes(
    sessions, tmp_path, key, newer
):
    await open_vault(sessions, keys=[key], state_dir=tmp_path)
    await add_sandboxes(sessions, Vault([key]), count=1)
    await open_vault(sessions, keys=[newer, key], state_dir=tmp_path)
    with pytest.raises(EncryptionKeyMissing, match=Vault([key]).key_id):
        await open_vault(sessions, keys=[newer], state_dir=tmp_path)


async def test_key_rotation__a_key_that_encrypted_any_value_is_required(
    sessions, tmp_path, key, newer
):
    await open_vault(sessions, keys=[key], state_dir=tmp_path)
    await add_sandboxes(sessions, Vault([newer]), count=1)
    with pytest.raises(EncryptionKeyMissing, match=Vault([newer]).key_id):
        await open_vault(sessions, keys=[key], state_dir=tmp_path)


async def test_key_rotation__a_value_moved_to_another_row_stops_it(sessions, tmp_path, key, newer):
    await open_vault(sessions, keys=[key], state_dir=tmp_path)
    await add_sandboxes(sessions, Vault([key]), count=1)
    async with sessions.begin() as session:
        await session.execute(update(Sandbox).values(access_sealed=Sandbox.envs_sealed))
    with pytest.raises(DecryptionFailed):
        await reencrypt(sessions, Vault([newer, key]))


async def test_key_rotation__concurrent_changes_are_not_overwritten(sessions, tmp_path, key, newer):
    await open_vault(sessions, keys=[key], state_dir=tmp_path)
    vault = Vault([newer, key])
    [sandbox_id] = await add_sandboxes(sessions, Vault([key]), count=1)
    async with sessions.begin() as session:
        # The rotation reads the old value and waits for our transaction.
        await session.execute(select(Sandbox).with_for_update())
        rotating = asyncio.create_task(reencrypt(sessions, vault))
        await waiting_for_a_lock(sessions)
        fresh = vault.encrypt(b"fresh", context=f"sandboxes.envs/{sandbox_id}")
        await session.execute(update(Sandbox).values(envs_sealed=fresh))
    await rotating
    assert await envs_of(sessions, Vault([newer]), [sandbox_id]) == ["fresh"]


async def test_encryption__the_installation_row_is_created_once(sessions, tmp_path, key):
    await asyncio.gather(*(open_vault(sessions, keys=[key], state_dir=tmp_path) for _ in range(5)))
    async with sessions() as session:
        assert len((await session.scalars(select(Installation))).all()) == 1


def test_key_rotation__covers_every_encrypted_column():
    named = {
        (table.name, column.name)
        for table in TABLES.values()
        for column in table.columns
        if column.name.endswith("_sealed")
    }
    known = {(column.value.class_.__tablename__, column.value.key) for column in ENCRYPTED_COLUMNS}
    assert named == known | EPHEMERAL
