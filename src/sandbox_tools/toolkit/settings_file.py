import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATH = Path("/etc/sandbox/tools.json")
TEXTS = ("token", "password", "sandbox_id", "api_url", "ports_url")


@dataclass(frozen=True, kw_only=True)
class SandboxSettings:
    """Settings that the server writes into the sandbox; see docs/in-the-sandbox.md."""

    token: str | None = field(default=None, repr=False)
    password: str | None = field(default=None, repr=False)
    sandbox_id: str | None = None
    api_url: str | None = None
    ports_url: str | None = None
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    mcp_servers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)


class SettingsFile:
    """The settings file, which the server may replace at any time."""

    def __init__(self, path: Path = PATH) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None
        self._settings = SandboxSettings()

    def read(self) -> SandboxSettings:
        """Return the current settings; the file is parsed again only when it was replaced."""
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                now = (status.st_ino, status.st_mtime_ns, status.st_size)
                if now != self._seen:
                    self._settings = _read(file.read())
                    self._seen = now
        except OSError:
            self._seen, self._settings = None, SandboxSettings()
        return self._settings


def _read(content: bytes) -> SandboxSettings:
    """Ignore unknown fields and wrong types: a newer server may write more than this version reads."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        return SandboxSettings()
    if not isinstance(document, dict):
        return SandboxSettings()
    texts = {name: document[name] for name in TEXTS if _is_text(document.get(name))}
    envs, servers = (_object(document.get(name)) for name in ("envs", "mcp_servers"))
    return SandboxSettings(
        **texts,
        envs={name: value for name, value in envs.items() if isinstance(value, str)},
        mcp_servers=servers,
    )


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _object(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
