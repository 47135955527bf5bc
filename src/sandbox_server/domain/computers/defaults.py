"""A tenant's values for desktops, browsers and MCP servers of sandboxes and sessions whose requests omit them.

The document has the keys `desktop`, `browser`, `mcp_servers` and `agent_types`, which has the first three by agent type. Values
by agent type precede the others, field by field and MCP server by MCP server.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from sandbox_server.domain.capabilities import DESKTOP
from sandbox_server.domain.requests import SandboxRequest

MASK = "********"
"""Shown instead of a stored secret; in a new configuration it stands for the stored one."""

_SECRETS = frozenset({"env", "envs", "headers"})


@dataclass(frozen=True, kw_only=True)
class ComputerDefaults:
    """The values that apply to requests of one agent type."""

    desktop: Mapping[str, Any] = field(default_factory=dict)
    """As `DesktopSettings` stores them, without those that are not configured."""
    proxies: Sequence[Mapping[str, Any]] | None = field(default=None, repr=False)
    captcha: bool | None = None
    mcp_servers: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, document: Mapping[str, Any], agent_type: str | None) -> Self:
        """Read a stored document."""
        own = document.get("agent_types", {}).get(agent_type or "", {})
        desktop, browser, mcp_servers = (
            {**document.get(name, {}), **own.get(name, {})}
            for name in ("desktop", "browser", "mcp_servers")
        )
        return cls(
            desktop=_desktop(desktop),
            proxies=browser.get("proxies"),
            captcha=browser.get("captcha"),
            mcp_servers=mcp_servers,
        )

    def apply(
        self, request: SandboxRequest, *, capabilities: frozenset[str], has_services: bool
    ) -> SandboxRequest:
        """Add what a request omits and its template can use."""
        if DESKTOP in capabilities and self.desktop:
            request = replace(request, desktop={**self.desktop, **(request.desktop or {})})
        if has_services and self.mcp_servers:
            request = replace(request, mcp_servers={**self.mcp_servers, **request.mcp_servers})
        return request


def _desktop(configured: Mapping[str, Any]) -> dict[str, Any]:
    found = {name: configured[name] for name in ("dpi", "stream") if name in configured}
    if "resolution" in configured:
        found |= configured["resolution"]
    if "recording" in configured:
        found["fps"] = configured["recording"]["fps"]
    return found


def masked(document: Any, *, is_secret: bool = False) -> Any:
    """Replace passwords, and values of environment variables and headers, by a mask."""
    if isinstance(document, Mapping):
        return {
            name: masked(value, is_secret=is_secret or name in _SECRETS or name == "password")
            for name, value in document.items()
        }
    if isinstance(document, list):
        return [masked(each, is_secret=is_secret) for each in document]
    return MASK if is_secret and document is not None else document


def unmasked(document: Any, stored: Any) -> Any:
    """Put stored values in the place of masks; a mask without a stored value stays."""
    if isinstance(document, Mapping):
        before = stored if isinstance(stored, Mapping) else {}
        return {name: unmasked(value, before.get(name)) for name, value in document.items()}
    if isinstance(document, list):
        listed = stored if isinstance(stored, list) else []
        padded = [*listed, *[None] * len(document)]
        return [unmasked(each, before) for each, before in zip(document, padded, strict=False)]
    return stored if document == MASK and stored is not None else document


def has_mask(document: Any) -> bool:
    if isinstance(document, Mapping):
        return any(map(has_mask, document.values()))
    if isinstance(document, list):
        return any(map(has_mask, document))
    return bool(document == MASK)
