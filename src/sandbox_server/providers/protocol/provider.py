"""Requests to sandbox providers and their answers, without the provider's own types."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from ssl import SSLContext
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """The addresses and credentials of a provider.

    Without a `sandbox_url`, sandboxes are reached by host names below `domain`.
    """

    name: str
    api_url: str
    api_key: str = field(repr=False)
    sandbox_url: str | None = None
    domain: str
    ca_cert: bytes | None = field(default=None, repr=False)
    """CA certificates in PEM that are trusted in addition to the system's."""
    public_traffic: bool = False
    """Whether ports of sandboxes may answer at the provider's own address to callers without a token."""

    @property
    def has_encrypted_sandboxes(self) -> bool:
        return self.sandbox_url is None or self.sandbox_url.startswith("https:")


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
    """Credentials of one sandbox. Its tokens are secret: seal them."""

    provider_id: str
    domain: str | None
    envd_version: str
    envd_token: str | None = field(repr=False)
    traffic_token: str | None = field(repr=False)
    cdp_url: str | None = field(default=None, repr=False)
    """The WebSocket of its browser, where the provider runs browsers only; it contains a credential."""


@dataclass(frozen=True, kw_only=True)
class PortAddress:
    """The address of a server in a sandbox, with request headers; some of them are secret."""

    sandbox: str
    port: int
    host: str
    host_port: int
    tls: SSLContext | None
    headers: Sequence[tuple[bytes, bytes]] = field(repr=False)
    authority: str
    is_shared: bool
    """Many sandboxes share the address, and the headers select one; otherwise the `authority` does."""
    target: bytes | None = field(default=None, repr=False)
    """Path and query that replace those of requests, where they belong to the address."""

    @property
    def origin(self) -> str:
        """The origin of the server from the provider's view."""
        return f"{'http' if self.tls is None else 'https'}://{self.authority}"


class PortRefusal(StrEnum):
    """Why a provider does not forward traffic to a sandbox's port."""

    CLOSED = "closed"
    GONE = "gone"


@dataclass(frozen=True, kw_only=True)
class NewSandbox:
    """A sandbox to create; `sandbox_id` is ours, and the idempotency key."""

    sandbox_id: str
    tenant_id: str
    template: str
    timeout: timedelta
    envs: Mapping[str, str] = field(default_factory=dict, repr=False)
    network: Mapping[str, Any] | None = None
    allow_internet: bool | None = None
    volumes: Mapping[str, str] = field(default_factory=dict)
    lifetime: timedelta | None = None
    """The sandbox's own timeout, for providers that cannot extend theirs."""


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Resource usage at one moment; memory and disk in bytes."""

    at: datetime
    cpu_count: int
    cpu_percent: float
    memory_used: int
    memory_total: int
    disk_used: int
    disk_total: int


@dataclass(frozen=True, kw_only=True)
class Finished:
    """The end of a command, with its interleaved output; of long output the end."""

    exit_code: int
    output: bytes
    truncated: bool


@dataclass(frozen=True, kw_only=True)
class RequestedBuild:
    """A build that was requested and not started."""

    template_id: str
    build_id: str


class BuildState(StrEnum):
    WAITING = "waiting"
    BUILDING = "building"
    READY = "ready"
    ERROR = "error"


@dataclass(frozen=True, kw_only=True)
class BuildProgress:
    """Progress of a build, with new log lines and the reason of a failure."""

    state: BuildState
    lines: Sequence[str]
    failure: str | None


@dataclass(frozen=True, kw_only=True)
class FoundTemplate:
    """A template found by name; `id` is None for those of other teams."""

    id: str | None = None


@dataclass(frozen=True, kw_only=True)
class ProviderTemplate:
    """A template as the provider lists it; usable unless its only build failed."""

    id: str
    names: Sequence[str]
    is_ready: bool
    cpu_count: int
    memory_mb: int
