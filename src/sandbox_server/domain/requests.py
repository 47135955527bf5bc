"""Requests of callers, before placement and admission."""

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from typing import Any, Self, TypedDict

from sandbox_server.domain.state import OnTimeout
from sandbox_server.domain.templates import BASE


@dataclass(frozen=True, kw_only=True)
class CheckoutWish:
    """A repository to check out in a new sandbox."""

    repository_id: str
    ref: str
    branch: str
    push: bool
    directory: str

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "state": "pending"}


@dataclass(frozen=True, kw_only=True)
class PreparedSnapshot:
    """A snapshot to create a sandbox from, where its template and its backend are those of the sandbox."""

    snapshot_id: str
    template: str


@dataclass(frozen=True, kw_only=True)
class SandboxRequest:
    """A requested sandbox; None leaves a value to the defaults."""

    template: str | None = None
    capabilities: frozenset[str] = frozenset()
    """Capabilities that the template must have; without a template, they select it."""
    section: str | None = None
    """The section of the tenant's configuration that may name the template instead of `section_template`."""
    section_template: str | None = None
    backend: str | None = None
    agent_type: str | None = None
    user_id: str | None = None
    session_id: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    timeout: timedelta | None = None
    on_timeout: OnTimeout | None = None
    idle_timeout: timedelta | None = None
    auto_resume: bool = True
    priority: int = 0
    queue_timeout: timedelta | None = None
    network: Mapping[str, Any] = field(default_factory=dict)
    resources: Mapping[str, Any] = field(default_factory=dict)
    volumes: Mapping[str, str] = field(default_factory=dict)
    mcp_servers: Mapping[str, Any] = field(default_factory=dict, repr=False)
    checkout: CheckoutWish | None = None
    desktop: Mapping[str, Any] | None = None
    """The settings of its desktop, as `DesktopSettings` stores them."""
    prepared: PreparedSnapshot | None = None
    needs_files: bool = False
    """Whether the server is to put files into the sandbox."""

    def secrets(self) -> dict[str, Any]:
        """List the values that are stored encrypted."""
        secrets = {"envs": dict(self.envs), "mcp_servers": dict(self.mcp_servers)}
        return {name: values for name, values in secrets.items() if values}

    def with_section(self, defaults: "Defaults") -> Self:
        """Name the template of a kind of sandbox that has its own section in the tenant's configuration."""
        if self.section is None:
            return self
        if self.template is not None:
            return replace(self, section=None)
        configured = defaults.sections.get(self.section, {})
        return replace(self, template=configured.get("template", self.section_template))

    @property
    def needs(self) -> frozenset[str]:
        """List what the request needs besides capabilities of its template."""
        needs = {
            "desktop": self.desktop,
            "files": self.needs_files or self.checkout,
            "mcp": self.mcp_servers,
            **{name: getattr(self, name) for name in ("envs", "network", "volumes")},
        }
        return frozenset(name for name, value in needs.items() if value)


class SandboxPatch(TypedDict, total=False):
    """Changes of a sandbox; missing fields stay as they are."""

    metadata: dict[str, str]
    timeout: timedelta
    on_timeout: OnTimeout
    idle_timeout: timedelta | None
    auto_resume: bool
    priority: int
    mcp_servers: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class ForkRequest:
    """A requested fork; None copies the value of the original."""

    user_id: str | None = None
    session_id: str | None = None
    metadata: Mapping[str, str] | None = None
    timeout: timedelta | None = None


_SECTIONS = ("desktop", "browser")


@dataclass(frozen=True, kw_only=True)
class Defaults:
    """Values for what a request omits."""

    template: str = BASE
    capabilities: frozenset[str] = frozenset()
    """Capabilities that select the template, if a request names neither."""
    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Stored defaults of sandboxes that are requested by a capability, by capability."""
    meanwhile: str | None = None
    """The template to use while `template` is not ready."""
    backend: str | None = None
    timeout: timedelta = timedelta(hours=1)
    on_timeout: OnTimeout = OnTimeout.PAUSE
    idle_timeout: timedelta | None = None

    def section(self, wanted: Collection[str]) -> Mapping[str, Any]:
        """Return the defaults of sandboxes with these capabilities; of several sections, the first applies."""
        found = [
            self.sections[name] for name in _SECTIONS if name in wanted and name in self.sections
        ]
        return found[0] if found else {}

    def overridden(self, document: Mapping[str, Any]) -> Self:
        """Override these defaults with a tenant's stored ones."""
        own: dict[str, Any] = {
            name: document[name] for name in ("template", "backend") if document.get(name)
        }
        if "template" in own:
            own["meanwhile"], own["capabilities"] = None, frozenset()
        if document.get("capabilities"):
            own["capabilities"] = frozenset(document["capabilities"])
        sections = {name: document[name] for name in _SECTIONS if document.get(name)}
        if sections:
            own["sections"] = sections
        for name in ("timeout", "idle_timeout"):
            if document.get(f"{name}_s") is not None:
                own[name] = timedelta(seconds=document[f"{name}_s"])
        if document.get("on_timeout"):
            own["on_timeout"] = OnTimeout(document["on_timeout"])
        return replace(self, **own)


@dataclass(frozen=True, kw_only=True)
class Idempotency:
    """An idempotency key, and the digest of the request that it was used for."""

    key: str
    digest: bytes

    @classmethod
    def of(cls, key: str, *, method: str, path: str, body: Any) -> Self:
        """Compute the digest; the order of fields in a body does not matter."""
        canonical = json.dumps([method, path, body], sort_keys=True, separators=(",", ":"))
        return cls(key=key, digest=hashlib.sha256(canonical.encode()).digest())
