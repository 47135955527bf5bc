import secrets

import pytest

from sandbox_server.vault import CannotUnseal, Vault


@pytest.fixture
def key():
    return secrets.token_bytes(32)


def test_what_was_sealed_is_opened_again(key):
    sealed = Vault([key]).seal(b"token", context="sandboxes.access/1")
    assert b"token" not in sealed
    assert Vault([key]).open(sealed, context="sandboxes.access/1") == b"token"


def test_what_was_sealed_for_one_row_is_not_opened_for_another(key):
    vault = Vault([key])
    with pytest.raises(CannotUnseal):
        vault.open(vault.seal(b"token", context="one"), context="other")


def test_what_an_older_key_sealed_is_opened_after_a_rotation(key):
    old = Vault([key]).seal(b"token", context="here")
    rotated = Vault([secrets.token_bytes(32), key])
    assert rotated.open(old, context="here") == b"token"
    assert not rotated.is_current(old)
    assert rotated.is_current(rotated.seal(b"token", context="here"))


def test_without_its_key_nothing_is_opened(key):
    sealed = Vault([key]).seal(b"token", context="here")
    with pytest.raises(CannotUnseal, match="not given"):
        Vault([secrets.token_bytes(32)]).open(sealed, context="here")


def test_a_changed_byte_is_noticed(key):
    vault = Vault([key])
    sealed = bytearray(vault.seal(b"token", context="here"))
    sealed[-1] ^= 1
    with pytest.raises(CannotUnseal):
        vault.open(bytes(sealed), context="here")


def test_a_key_of_another_length_is_refused():
    with pytest.raises(ValueError, match="32 bytes"):
        Vault([b"short"])
