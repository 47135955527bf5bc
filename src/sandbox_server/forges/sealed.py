"""Encrypted columns of forges, each bound to its row."""

from sandbox_server.vault import Vault


def seal_secret(vault: Vault, forge_id: str, secret: str) -> bytes:
    return vault.encrypt(secret.encode(), context=_secret(forge_id))


def open_secret(vault: Vault, forge_id: str, sealed: bytes) -> str:
    return vault.decrypt(sealed, context=_secret(forge_id)).decode()


def seal_webhook_secret(vault: Vault, forge_id: str, secret: str) -> bytes:
    return vault.encrypt(secret.encode(), context=_webhook_secret(forge_id))


def open_webhook_secret(vault: Vault, forge_id: str, sealed: bytes) -> bytes:
    return vault.decrypt(sealed, context=_webhook_secret(forge_id))


def _secret(forge_id: str) -> str:
    return f"forges.secret/{forge_id}"


def _webhook_secret(forge_id: str) -> str:
    return f"forges.webhook_secret/{forge_id}"
