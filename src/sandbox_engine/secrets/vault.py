"""Secrets at rest: each value is sealed with AES-256-GCM under a key kept beside them.

What is sealed is bound to the secret's id, name and version: a sealed value that was moved to
another secret, or put back after an update, does not open.
"""

import base64
import os
import threading
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pydantic import BaseModel

from sandbox_engine.system.errors import EngineError
from sandbox_engine.system.ids import new_id
from sandbox_engine.system.json_store import Shelf
from sandbox_engine.system.private_files import flush, write_private

ID_PREFIX = "sec_"

_KEY_BITS = 256
_NONCE_BYTES = 12


class SecretNotFound(EngineError):
    """No secret has this id or name."""

    code = "secret_not_found"

    def __init__(self, reference: str) -> None:
        super().__init__(f"Secret '{reference}' not found")


class SecretExists(EngineError):
    """Another secret has this name."""

    code = "secret_exists"

    def __init__(self, name: str) -> None:
        super().__init__(f"Secret with name '{name}' already exists")


class SecretUnreadable(EngineError):
    """A sealed value does not open with this engine's key."""

    code = "secret_unreadable"

    def __init__(self, name: str) -> None:
        super().__init__(f"Secret '{name}' cannot be opened with this engine's key")


class Secret(BaseModel):
    """What is kept of a secret; the value is in it sealed only."""

    id: str
    name: str
    version: int
    sealed: str
    metadata: dict[str, str]
    created_at: datetime
    updated_at: datetime


class Vault:
    """Keeps secrets; its methods block, and may be called from any thread."""

    def __init__(self, directory: Path) -> None:
        self._shelf = Shelf(directory / "secrets", Secret)
        self._cipher = AESGCM(_find_key(directory / "key"))
        self._secrets = {secret.id: secret for secret in self._shelf.load_all()}
        self._lock = threading.Lock()

    def create(self, name: str, value: str, metadata: Mapping[str, str]) -> Secret:
        """Keep a new secret; no other may have its name."""
        name, now = name.lower(), datetime.now(UTC)
        with self._lock:
            if self._find(name) is not None:
                raise SecretExists(name)
            secret = Secret(
                id=f"{ID_PREFIX}{new_id()}",
                name=name,
                version=1,
                sealed="",
                metadata=dict(metadata),
                created_at=now,
                updated_at=now,
            )
            secret.sealed = self._seal(secret, value)
            self._shelf.add(secret)
            self._keep(secret)
            return secret

    def update(self, reference: str, value: str, metadata: Mapping[str, str] | None) -> Secret:
        """Replace a secret's value, and its metadata if there is any given."""
        with self._lock:
            secret = self.get(reference).model_copy()
            secret.version += 1
            secret.updated_at = datetime.now(UTC)
            secret.sealed = self._seal(secret, value)
            if metadata is not None:
                secret.metadata = dict(metadata)
            self._shelf.save(secret)
            self._keep(secret)
            return secret

    def remove(self, reference: str) -> None:
        """Forget a secret with its value."""
        with self._lock:
            secret = self.get(reference)
            self._shelf.remove(secret.id)
            del self._secrets[secret.id]

    def get(self, reference: str) -> Secret:
        """Get the secret of this id or name."""
        secret = self._find(reference)
        if secret is None:
            raise SecretNotFound(reference)
        return secret

    def all(self) -> list[Secret]:
        """List every secret, oldest first."""
        return sorted(self._secrets.values(), key=lambda secret: secret.id)

    def reveal(self, reference: str) -> str:
        """Open a secret's value, for the engine itself: nothing that callers reach returns it."""
        secret = self.get(reference)
        sealed = base64.b64decode(secret.sealed)
        nonce, ciphertext = sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:]
        try:
            return self._cipher.decrypt(nonce, ciphertext, _bound_to(secret)).decode()
        except InvalidTag:
            raise SecretUnreadable(secret.name) from None

    def _find(self, reference: str) -> Secret | None:
        name = reference.lower()
        by_name = (one for one in list(self._secrets.values()) if one.name == name)
        return self._secrets.get(reference) or next(by_name, None)

    def _seal(self, secret: Secret, value: str) -> str:
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, value.encode(), _bound_to(secret))
        return base64.b64encode(nonce + sealed).decode()

    def _keep(self, secret: Secret) -> None:
        self._shelf.flush(secret.id)
        self._secrets[secret.id] = secret


def _find_key(path: Path) -> bytes:
    if not path.exists():
        write_private(path, AESGCM.generate_key(_KEY_BITS))
        flush(path)
    return path.read_bytes()


def _bound_to(secret: Secret) -> bytes:
    return f"{secret.id}:{secret.name}:{secret.version}".encode()
