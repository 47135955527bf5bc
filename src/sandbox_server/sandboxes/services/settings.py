"""The settings of the services in a sandbox; see docs/in-the-sandbox.md."""

import hashlib
import hmac
import json
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field

from sandbox_server.db.models import Sandbox
from sandbox_server.proxy.targets import PublicAddress
from sandbox_server.sandboxes.services.encrypted_columns import open_envs
from sandbox_server.vault import Vault

_PASSWORD_BYTES = 18


@dataclass(frozen=True)
class ServiceSettings:
    """The content of a sandbox's settings file."""

    content: bytes = field(repr=False)

    def digest(self, provider_id: str) -> bytes:
        """Digest of the content and the sandbox: a fork has the files of its original."""
        return hashlib.sha256(provider_id.encode() + b"\0" + self.content).digest()


def settings_of(
    row: Sandbox, token: str, *, vault: Vault, public: PublicAddress | None
) -> ServiceSettings:
    """Build the settings of a sandbox's services."""
    secrets = open_envs(vault, row.id, row.envs_sealed)
    document = {
        "token": token,
        "password": password_of(token),
        "sandbox_id": row.id,
        "envs": secrets.get("envs", {}),
        "mcp_servers": secrets.get("mcp_servers", {}),
    }
    if public is not None:
        document |= {"api_url": public.api_url, "ports_url": public.url(row.id, "{port}")}
    return ServiceSettings(json.dumps(document, sort_keys=True).encode())


def password_of(token: str) -> str:
    """Derive the password of code-server, which does not reveal the token."""
    made = hmac.digest(token.encode(), b"code-server", "sha256")
    return urlsafe_b64encode(made[:_PASSWORD_BYTES]).decode()
