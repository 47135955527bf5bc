from datetime import datetime, timedelta
from enum import StrEnum
from pathlib import Path

from pydantic import BaseModel, Field

from sandbox_engine.images.image import DEFAULT_USER
from sandbox_engine.network.firewall.policy import Policy
from sandbox_engine.system.settings import Resources


class State(StrEnum):
    """State of a sandbox; callers only see `running` and `paused`."""

    CREATING = "creating"
    RESERVED = "reserved"
    RUNNING = "running"
    PAUSED = "paused"
    KILLING = "killing"


class OnTimeout(StrEnum):
    KILL = "kill"
    PAUSE = "pause"


class LinkRecord(BaseModel):
    """The network link of a sandbox."""

    name: str
    netns: str
    address: str


class InitRecord(BaseModel):
    """A sandbox's init process; the start time tells it from a later process with its pid."""

    pid: int
    start_ticks: int


class EgressRecord(BaseModel):
    """Egress options as requested."""

    allow_out: list[str] | None = None
    deny_out: list[str] | None = None
    dns_servers: list[str] | None = None

    def policy(self, *, allow_internet: bool | None) -> Policy:
        """Build the policy; raises InvalidRequest if the options are invalid."""
        return Policy.parse(
            allow_out=self.allow_out or (),
            deny_out=self.deny_out or (),
            dns_servers=self.dns_servers or (),
            internet=allow_internet is not False,
        )


class NetworkRecord(EgressRecord):
    """Network options as requested."""

    allow_public_traffic: bool | None = None
    mask_request_host: str | None = None


class MountRecord(BaseModel):
    """A mounted volume."""

    volume_id: str
    name: str
    path: str


class IdempotencyRecord(BaseModel):
    key: str
    digest: str


class SandboxRecord(BaseModel):
    """State of a sandbox that an engine needs to adopt it after a restart."""

    id: str
    state: State = State.CREATING
    reason: str = ""
    template: str
    template_name: str
    layers: tuple[Path, ...]
    template_envs: dict[str, str] = Field(default_factory=dict)
    user: str = DEFAULT_USER
    workdir: str = ""
    start_command: str = ""
    ready_command: str = ""
    base: str | None = None
    metadata: dict[str, str] | None = None
    envs: dict[str, str] = Field(default_factory=dict)
    resources: Resources
    volumes: tuple[MountRecord, ...] = ()
    allow_internet: bool | None = None
    network: NetworkRecord = Field(default_factory=NetworkRecord)
    policing: bool = False  # connections that a new policy denies may not be cut yet
    access_token: str
    traffic_token: str | None = None
    created_at: datetime
    started_at: datetime
    ends_at: datetime
    timeout: timedelta
    on_timeout: OnTimeout = OnTimeout.KILL
    pause_keeps_memory: bool = True
    filesystem_only: bool = False
    auto_resume: bool = False
    idempotency: IdempotencyRecord | None = None
    link: LinkRecord | None = None
    init: InitRecord | None = None

    @property
    def policy(self) -> Policy:
        """The egress policy."""
        return self.network.policy(allow_internet=self.allow_internet)

    @property
    def starts_something(self) -> bool:
        """Return whether the template has start or ready commands."""
        return bool(self.start_command or self.ready_command)
