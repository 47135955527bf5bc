import secrets

import pytest

from sandbox_server.vault import DecryptionFailed, Vault


@pytest.fixture
def key():
    return secrets.token_bytes(32)


def test_vault__an_encrypted_value_can_be_decrypted(key):
    encrypted = Vault([key]).encrypt(b"token", context="sandboxes.access/1")
    assert b"token" not in encrypted
    assert Vault([key]).decrypt(encrypted, context="sandboxes.access/1") == b"token"


def test_vault__a_value_of_another_row_cannot_be_decrypted(key):
    vault = Vault([key])
    with pytest.raises(DecryptionFailed):
        vault.decrypt(vault.encrypt(b"token", context="one"), context="other")


def test_vault__values_of_an_older_key_can_be_decrypted_after_rotation(key):
    old = Vault([key]).encrypt(b"token", context="here")
    rotated = Vault([secrets.token_bytes(32), key])
    assert rotated.decrypt(old, context="here") == b"token"
    assert not rotated.is_current(old)
    assert rotated.is_current(rotated.encrypt(b"token", context="here"))


def test_vault__a_missing_key_is_reported(key):
    encrypted = Vault([key]).encrypt(b"token", context="here")
    with pytest.raises(DecryptionFailed, match="missing"):
        Vault([secrets.token_bytes(32)]).decrypt(encrypted, context="here")


def test_vault__a_modified_value_is_rejected(key):
    vault = Vault([key])
    encrypted = bytearray(vault.encrypt(b"token", context="here"))
    encrypted[-1] ^= 1
    with pytest.raises(DecryptionFailed):
        vault.decrypt(bytes(encrypted), context="here")


def test_vault__a_key_of_another_length_is_refused():
    with pytest.raises(ValueError, match="32 bytes"):
        Vault([b"short"])
