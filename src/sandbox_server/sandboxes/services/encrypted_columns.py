"""Encrypted columns of sandboxes."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sandbox_server.db.models import Tenant
from sandbox_server.providers.protocol.provider import Access
from sandbox_server.vault import Vault


def seal_access(vault: Vault, sandbox_id: str, access: Access) -> bytes:
    return vault.encrypt(json.dumps(asdict(access)).encode(), context=_access(sandbox_id))


def open_access(vault: Vault, sandbox_id: str, sealed: bytes) -> Access:
    return Access(**json.loads(vault.decrypt(sealed, context=_access(sandbox_id))))


def seal_envs(vault: Vault, sandbox_id: str, document: Mapping[str, Any]) -> bytes | None:
    """Seal the secrets of a request: `envs` and `mcp_servers`; None without any."""
    if not document:
        return None
    return vault.encrypt(json.dumps(document).encode(), context=_envs(sandbox_id))


def open_envs(vault: Vault, sandbox_id: str, sealed: bytes | None) -> dict[str, Any]:
    if sealed is None:
        return {}
    document: dict[str, Any] = json.loads(vault.decrypt(sealed, context=_envs(sandbox_id)))
    return document


def seal_computers(vault: Vault, tenant_id: str, document: Mapping[str, Any]) -> bytes | None:
    """Seal a tenant's defaults of desktops, browsers and MCP servers; None without any."""
    if not document:
        return None
    return vault.encrypt(json.dumps(document).encode(), context=_computers(tenant_id))


def open_computers(vault: Vault, tenant: Tenant) -> dict[str, Any]:
    if tenant.computers_sealed is None:
        return {}
    document: dict[str, Any] = json.loads(
        vault.decrypt(tenant.computers_sealed, context=_computers(tenant.id))
    )
    return document


def seal_tools_token(vault: Vault, sandbox_id: str, token: str) -> bytes:
    return vault.encrypt(token.encode(), context=_tools_token(sandbox_id))


def open_tools_token(vault: Vault, sandbox_id: str, sealed: bytes) -> str:
    return vault.decrypt(sealed, context=_tools_token(sandbox_id)).decode()


def _access(sandbox_id: str) -> str:
    return f"sandboxes.access/{sandbox_id}"


def _computers(tenant_id: str) -> str:
    return f"tenants.computers/{tenant_id}"


def _envs(sandbox_id: str) -> str:
    return f"sandboxes.envs/{sandbox_id}"


def _tools_token(sandbox_id: str) -> str:
    return f"sandboxes.tools_token/{sandbox_id}"
