"""Encrypts secrets in the database with AES-256-GCM; the keys are not stored in the database.

1 byte      8 bytes    12 bytes    the rest
version     key id     nonce       ciphertext and tag, bound to the context
"""

import hashlib
import secrets
from collections.abc import Sequence

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_LENGTH = 32

_VERSION = b"\x01"
_ID_LENGTH = 8
_NONCE_LENGTH = 12

KEY_ID_SLICE = slice(len(_VERSION), len(_VERSION) + _ID_LENGTH)
"""Position of the key id in an encrypted value."""


class DecryptionFailed(RuntimeError):
    """The value was encrypted with another key or for another row, or was modified."""


class Vault:
    """Encrypts with the first of its keys and decrypts with any of them."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) != KEY_LENGTH for key in keys):
            raise ValueError(f"An encryption key must have {KEY_LENGTH} bytes.")
        self._ciphers = {_id_of(key): AESGCM(key) for key in keys}
        self._current = _id_of(keys[0])

    @property
    def key_id(self) -> str:
        """Id of the current key, which reveals nothing about it."""
        return self._current.hex()

    def has_key(self, key_id: str) -> bool:
        return bytes.fromhex(key_id) in self._ciphers

    def encrypt(self, secret: bytes, *, context: str) -> bytes:
        """Encrypt a secret, bound to `context`: a value moved to another row cannot be decrypted."""
        nonce = secrets.token_bytes(_NONCE_LENGTH)
        encrypted = self._ciphers[self._current].encrypt(nonce, secret, context.encode())
        return _VERSION + self._current + nonce + encrypted

    def decrypt(self, encrypted: bytes, *, context: str) -> bytes:
        head, key_id = encrypted[:1], encrypted[KEY_ID_SLICE]
        nonce = encrypted[1 + _ID_LENGTH :][:_NONCE_LENGTH]
        if head != _VERSION or key_id not in self._ciphers:
            raise DecryptionFailed(f"Encrypted with the key {key_id.hex()}, which is missing.")
        try:
            rest = encrypted[1 + _ID_LENGTH + _NONCE_LENGTH :]
            return self._ciphers[key_id].decrypt(nonce, rest, context.encode())
        except InvalidTag:
            raise DecryptionFailed("Encrypted for another row, or modified.") from None

    def is_current(self, encrypted: bytes) -> bool:
        """Return whether the value is encrypted with the current key."""
        return encrypted[KEY_ID_SLICE] == self._current


def _id_of(key: bytes) -> bytes:
    return hashlib.sha256(b"sandbox-server key id" + key).digest()[:_ID_LENGTH]
