"""What must not be read by who finds the database: sealed with AES-256-GCM under keys that are not in it.

1 byte      8 bytes             12 bytes    the rest
version     which of our keys   nonce       ciphertext and tag, bound to the context
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
"""Where a sealed value tells which key sealed it."""


class CannotUnseal(RuntimeError):
    """It was sealed with another key, for another place, or changed since."""


class Vault:
    """Seals with the first of its keys, and opens what any of them sealed."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        if not keys or any(len(key) != KEY_LENGTH for key in keys):
            raise ValueError(f"An encryption key has {KEY_LENGTH} bytes.")
        self._ciphers = {_id_of(key): AESGCM(key) for key in keys}
        self._current = _id_of(keys[0])

    @property
    def key_id(self) -> str:
        """Name the key that seals now, without telling anything of it."""
        return self._current.hex()

    def has_key(self, key_id: str) -> bool:
        return bytes.fromhex(key_id) in self._ciphers

    def seal(self, secret: bytes, *, context: str) -> bytes:
        """Seal for one place, which `context` names: moved to another row it cannot be opened."""
        nonce = secrets.token_bytes(_NONCE_LENGTH)
        sealed = self._ciphers[self._current].encrypt(nonce, secret, context.encode())
        return _VERSION + self._current + nonce + sealed

    def open(self, sealed: bytes, *, context: str) -> bytes:
        head, key_id = sealed[:1], sealed[KEY_ID_SLICE]
        nonce = sealed[1 + _ID_LENGTH :][:_NONCE_LENGTH]
        if head != _VERSION or key_id not in self._ciphers:
            raise CannotUnseal(f"It was sealed with the key {key_id.hex()}, which is not given.")
        try:
            rest = sealed[1 + _ID_LENGTH + _NONCE_LENGTH :]
            return self._ciphers[key_id].decrypt(nonce, rest, context.encode())
        except InvalidTag:
            raise CannotUnseal("It was sealed for another place, or changed since.") from None

    def is_current(self, sealed: bytes) -> bool:
        """Tell whether the key that seals now sealed it."""
        return sealed[KEY_ID_SLICE] == self._current


def _id_of(key: bytes) -> bytes:
    return hashlib.sha256(b"sandbox-server key id" + key).digest()[:_ID_LENGTH]
