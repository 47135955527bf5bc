"""What the server asks of a sandbox provider, and what it is told, without the provider's own types."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from ssl import SSLContext
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """Where a provider is.

    Without a `sandbox_url`, sandboxes are reached by host names below `domain`.
    """

    name: str
    api_url: str
    api_key: str = field(repr=False)
    sandbox_url: str | None = None
    domain: str
    ca_cert: bytes | None = field(default=None, repr=False)
    """Certificates in PEM that are trusted for it besides the machine's own."""
    public_traffic: bool = False
    """Whether ports of sandboxes may answer at the provider's own address to callers without a token."""


class ReportedState(StrEnum):
    RUNNING = "running"
    PAUSED = "paused"


@dataclass(frozen=True, kw_only=True)
class ProviderSandbox:
    """A sandbox as the provider knows it."""

    id: str
    state: ReportedState
    sandbox_id: str | None
    installation_id: str | None
    tenant_id: str | None
    template: str
    started_at: datetime
    ends_at: datetime


@dataclass(frozen=True, kw_only=True)
class Access:
    """All that it takes to reach into one sandbox. Its tokens are secret: seal them."""

    provider_id: str
    domain: str | None
    envd_version: str
    envd_token: str | None = field(repr=False)
    traffic_token: str | None = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class PortAddress:
    """Where a server in a sandbox is asked, and what with; some of its headers are secret."""

    sandbox: str
    port: int
    host: str
    host_port: int
    tls: SSLContext | None
    headers: Sequence[tuple[bytes, bytes]] = field(repr=False)
    authority: str
    is_shared: bool
    """Many sandboxes have this one address, and the headers say which is meant. Else it is by the `authority`."""

    @property
    def origin(self) -> str:
        """Name the origin that the server is at for its provider."""
        return f"{'http' if self.tls is None else 'https'}://{self.authority}"


class PortRefusal(StrEnum):
    """Why a provider passes nothing on to a sandbox's port."""

    CLOSED = "closed"
    GONE = "gone"


@dataclass(frozen=True, kw_only=True)
class NewSandbox:
    """A sandbox to be; `sandbox_id` is ours, and makes a repeated request the same request."""

    sandbox_id: str
    tenant_id: str
    template: str
    timeout: timedelta
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    network: Mapping[str, Any] | None = None
    allow_internet: bool | None = None
    volumes: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Usage:
    """What a sandbox used at one moment; memory and disk in bytes."""

    at: datetime
    cpu_count: int
    cpu_percent: float
    memory_used: int
    memory_total: int
    disk_used: int
    disk_total: int


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How a command ended, and what it wrote, both outputs as they came; of too much, the end."""

    exit_code: int
    output: bytes
    truncated: bool


@dataclass(frozen=True, kw_only=True)
class RequestedBuild:
    """A build that its provider has a name for, and waits to be told what to do."""

    template_id: str
    build_id: str


class BuildState(StrEnum):
    WAITING = "waiting"
    BUILDING = "building"
    READY = "ready"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class BuildProgress:
    """How far a build is, what it said since it was asked before, and why it failed."""

    state: BuildState
    lines: Sequence[str]
    failure: str | None


@dataclass(frozen=True, kw_only=True)
class FoundTemplate:
    """A template that a provider found by a name; `id` is None for those of other teams."""

    id: str | None = None


@dataclass(frozen=True, kw_only=True)
class ProviderTemplate:
    """A template as the provider lists it; sandboxes can be made from it unless its only build failed."""

    id: str
    names: Sequence[str]
    is_ready: bool
    cpu_count: int
    memory_mb: int
