import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

SEPARATOR = "__"
"""Between the names of server and tool. No built-in tool or server name contains it, so names are unique."""

_MAX_NAME = 40
_NAME = re.compile(r"[A-Za-z0-9-]+(_[A-Za-z0-9-]+)*")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


class ConfigSource(StrEnum):
    """Where a server is configured; later sources override earlier ones."""

    BUILT_IN = "built-in"
    SHIPPED = "shipped"
    USER = "user"
    SETTINGS = "settings"


class Transport(StrEnum):
    STDIO = "stdio"
    HTTP = "http"
    SSE = "sse"


_TRANSPORTS = {
    "stdio": Transport.STDIO,
    "http": Transport.HTTP,
    "streamable-http": Transport.HTTP,
    "streamableHttp": Transport.HTTP,
    "sse": Transport.SSE,
}


class InvalidServerConfig(Exception):
    """The configuration of a server is invalid; the message contains none of its values."""


@dataclass(frozen=True, kw_only=True)
class LaunchSpec:
    """How to start or reach a server; a restart is needed only if it changes."""

    transport: Transport
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str = field(default="", repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """A server of an `mcpServers` document."""

    name: str
    source: ConfigSource
    disabled: bool
    description: str
    document: Mapping[str, Any] = field(repr=False)

    @classmethod
    def of(cls, name: str, document: object, source: ConfigSource) -> "ServerConfig":
        # Validated at launch, so that invalid servers can still be listed and disabled.
        known = document if isinstance(document, dict) else {}
        return cls(
            name=name,
            source=source,
            disabled=known.get("disabled") is True,
            description=str(known.get("description", ""))[:500],
            document=known,
        )

    @property
    def transport(self) -> Transport | None:
        kind = self.document.get("type") or self.document.get("transport")
        if kind is None:
            return Transport.HTTP if "url" in self.document else Transport.STDIO
        return _TRANSPORTS.get(kind) if isinstance(kind, str) else None

    def launch(self, variables: Mapping[str, str]) -> LaunchSpec:
        """Validate the configuration and expand its variables."""
        check_name(self.name)
        values = _Values(self.document, variables)
        match self.transport:
            case None:
                raise InvalidServerConfig(f"type must be one of {', '.join(_TRANSPORTS)}.")
            case Transport.STDIO:
                return LaunchSpec(
                    transport=Transport.STDIO,
                    command=values.text("command"),
                    args=values.texts("args"),
                    env={**variables, **values.mapping("env")},
                    cwd=values.text("cwd") if self.document.get("cwd") else None,
                )
            case transport:
                url = values.text("url")
                if not url.startswith(("http://", "https://")):
                    raise InvalidServerConfig("url must start with http:// or https://.")
                return LaunchSpec(transport=transport, url=url, headers=values.mapping("headers"))


def check_name(name: str) -> None:
    if len(name) > _MAX_NAME or not _NAME.fullmatch(name):
        raise InvalidServerConfig(
            f"Invalid server name: use at most {_MAX_NAME} letters, digits, '-' and '_', without"
            " leading, trailing or double '_'."
        )


@dataclass(frozen=True)
class _Values:
    document: Mapping[str, Any]
    variables: Mapping[str, str]

    def text(self, key: str) -> str:
        value = self.document.get(key)
        if not isinstance(value, str) or not value:
            raise InvalidServerConfig(f"{key} must be a non-empty string.")
        return self._expanded(value, key)

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.document.get(key) or []
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise InvalidServerConfig(f"{key} must be a list of strings.")
        return tuple(self._expanded(item, key) for item in value)

    def mapping(self, key: str) -> dict[str, str]:
        value = self.document.get(key) or {}
        if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
            raise InvalidServerConfig(f"{key} must be an object with strings as values.")
        return {name: self._expanded(one, key) for name, one in value.items()}

    def _expanded(self, text: str, key: str) -> str:
        if "\0" in text:
            raise InvalidServerConfig(f"{key} contains a NUL character.")
        return _VARIABLE.sub(self._replacement(key), text)

    def _replacement(self, key: str) -> Callable[[re.Match[str]], str]:
        def replace(match: re.Match[str]) -> str:
            name, default = match.groups()
            value = self.variables.get(name)
            if not value and default is not None:
                return default
            if value is None:
                raise InvalidServerConfig(
                    f"{key} uses the variable {name}, which is not set. Set it in the sandbox's"
                    f" envs or write ${{{name}:-DEFAULT}}."
                )
            return value

        return replace
