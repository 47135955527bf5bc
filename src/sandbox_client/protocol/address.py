"""Server URL and API key: from arguments, environment variables or the configuration file."""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from sandbox_client.errors import ConfigurationError

URL = "SANDBOX_SERVER_URL"
API_KEY = "SANDBOX_SERVER_API_KEY"
CONFIG = "SANDBOX_SERVER_CLIENT_CONFIG"
DEFAULT_URL = "http://127.0.0.1:8100"

_NO_KEY = (
    f"No API key configured. Pass api_key, set {API_KEY}, or add api_key to {{file}}. "
    "Create a key with `sandbox-server keys create`."
)


@dataclass(frozen=True)
class Address:
    url: str
    api_key: str = field(repr=False)

    @property
    def headers(self) -> dict[str, str]:
        return {"X-API-Key": self.api_key} if self.api_key else {}

    @property
    def websocket_url(self) -> str:
        return f"ws{self.url.removeprefix('http')}"


@dataclass(frozen=True)
class McpAddress:
    """URL and headers for MCP clients (streamable HTTP)."""

    url: str
    headers: dict[str, str] = field(repr=False)


def find_address(
    url: str | None = None,
    api_key: str | None = None,
    *,
    environment: Mapping[str, str] = os.environ,
) -> Address:
    """Resolve URL and key; an empty key means none."""
    file = config_file(environment)
    written = _read(file)
    url = url or environment.get(URL)
    key = api_key if api_key is not None else environment.get(API_KEY)
    written_url = written.get("url") or DEFAULT_URL
    # A saved key is sent only to the server that it was saved for.
    if key is None and url in (None, written_url):
        key = written.get("api_key")
    if key is None:
        raise ConfigurationError(_NO_KEY.format(file=file))
    return Address(_checked(url or written_url), key.strip())


def config_file(environment: Mapping[str, str] = os.environ) -> Path:
    """Path of the configuration file: TOML with `url` and `api_key`."""
    if named := environment.get(CONFIG):
        return Path(named)
    home = environment.get("XDG_CONFIG_HOME")
    base = Path(home) if home else Path.home() / ".config"
    return base / "sandbox-server" / "client.toml"


def _read(file: Path) -> dict[str, str]:
    try:
        written = tomllib.loads(file.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"Cannot read {file}: {error}") from None
    if not all(isinstance(written.get(name, ""), str) for name in ("url", "api_key")):
        raise ConfigurationError(f"url and api_key in {file} must be strings.")
    return written


def _checked(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.netloc:
        raise ConfigurationError(f"The server URL must start with http:// or https://: {url!r}.")
    if parts.query or parts.fragment:
        raise ConfigurationError(f"The server URL must not have a query or fragment: {url!r}.")
    return url.rstrip("/")
