import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic_core import from_json

from sandbox_tools.gateway.server_config import ConfigSource, ServerConfig
from sandbox_tools.toolkit.settings_file import SettingsFile

SHIPPED = Path("/etc/sandbox/mcp.json")

_BUILT_IN = {
    "claude": {
        "command": "claude",
        "args": ["mcp", "serve"],
        "disabled": True,
        "description": "Claude Code's own tools",
    },
    # The last version with a working `codex mcp-server`; it fails in 0.154 and later.
    "codex": {
        "command": "npx",
        "args": ["-y", "@openai/codex@0.153.0", "mcp-server"],
        "disabled": True,
        "description": "Codex 0.153 as tools with resumable threads; the tool `codex` runs the installed version",
    },
}


class InvalidConfigFile(Exception):
    """A configuration file is invalid; the message says why."""


class ConfigFile:
    """A file with `mcpServers`, which others may replace; parsed again only when it has changed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.problem: str | None = None
        self._seen: tuple[int, int, int] | None = None
        self._content: Mapping[str, Any] = {}

    def read(self) -> Mapping[str, Any]:
        """Return the content; while the file is invalid, its last valid content."""
        try:
            status = self.path.stat()
        except OSError:
            self._seen, self._content, self.problem = None, {}, None
            return self._content
        now = (status.st_ino, status.st_mtime_ns, status.st_size)
        if now != self._seen:
            self._seen = now
            try:
                self._content, self.problem = self.load(), None
            except InvalidConfigFile as error:
                self.problem = str(error)
        return self._content

    def load(self) -> dict[str, Any]:
        """Parse the file; raise InvalidConfigFile if it is invalid."""
        try:
            content = from_json(self.path.read_bytes())
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise InvalidConfigFile(f"Cannot read {self.path}: {error.strerror}.") from error
        except ValueError as error:
            raise InvalidConfigFile(
                f"{self.path} is not valid JSON. Correct or delete it."
            ) from error
        servers = content.get("mcpServers", {}) if isinstance(content, dict) else None
        if not isinstance(servers, dict):
            raise InvalidConfigFile(
                f'{self.path} must be a JSON object with an object "mcpServers".'
            )
        return dict(content)

    def replace(self, content: Mapping[str, Any]) -> None:
        """Replace the file atomically, readable by its owner only."""
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        new.unlink(missing_ok=True)
        with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            json.dump(content, file, indent=2)
            file.write("\n")
        new.replace(self.path)


class ConfigFiles:
    """The configured servers of all sources."""

    def __init__(self, settings: SettingsFile, *, shipped: Path, user: Path) -> None:
        self.settings = settings
        self.shipped = ConfigFile(shipped)
        self.user = ConfigFile(user)

    def configs(self) -> dict[str, ServerConfig]:
        """Merge the sources: later ones override earlier ones, and the user's switches override `disabled`."""
        user = self.user.read()
        sources: tuple[tuple[ConfigSource, Mapping[str, Any]], ...] = (
            (ConfigSource.BUILT_IN, _BUILT_IN),
            (ConfigSource.SHIPPED, self.shipped.read().get("mcpServers", {})),
            (ConfigSource.USER, user.get("mcpServers", {})),
            (ConfigSource.SETTINGS, self.settings.read().mcp_servers),
        )
        switched = user.get("switched")
        switches = switched if isinstance(switched, dict) else {}
        found: dict[str, ServerConfig] = {}
        for source, servers in sources:
            for name, document in _items(servers):
                found[name] = ServerConfig.of(
                    name, _set_enabled(document, switches.get(name)), source
                )
        return found

    def problems(self) -> list[str]:
        return [file.problem for file in (self.shipped, self.user) if file.problem is not None]


def _items(servers: object) -> list[tuple[str, object]]:
    return list(servers.items()) if isinstance(servers, dict) else []


def _set_enabled(document: object, on: object) -> object:
    if isinstance(document, dict) and isinstance(on, bool):
        return {**document, "disabled": not on}
    return document
