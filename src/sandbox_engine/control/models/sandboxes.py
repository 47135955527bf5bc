"""E2B's wire models of sandboxes."""

import json
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, StrictBool, StrictInt

from sandbox_engine.control.models.network import NetworkConfig, shown
from sandbox_engine.control.models.wire import WireModel, seconds
from sandbox_engine.records.journal import Entry, Level
from sandbox_engine.records.sandbox import OnTimeout, SandboxRecord, State
from sandbox_engine.sandboxes.new_sandbox import NewSandbox
from sandbox_engine.sandboxes.sandbox import Usage

# The SDK enables features by this version: file metadata, entry info in watch events, closing
# stdin.
ENVD_VERSION = "0.6.4"
CLIENT_ID = "6532622b"

_LOGGER = "engine"

DEFAULT_TIMEOUT_S = 300
DEFAULT_TIMEOUT_V1_S = 15


def _env_name(name: str) -> str:
    if not name or "=" in name or "\0" in name:
        raise ValueError("an environment variable needs a name without '=' and NUL")
    return name


def _no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain NUL")
    return text


EnvName = Annotated[str, AfterValidator(_env_name)]
EnvValue = Annotated[str, AfterValidator(_no_nul)]


class AutoResume(WireModel):
    enabled: StrictBool


class VolumeMount(WireModel):
    """A volume's name and its mount path."""

    name: str
    path: str


class NewSandboxBody(WireModel):
    """Request for a sandbox (v2)."""

    template_id: str = Field(alias="templateID", min_length=1, max_length=256)
    timeout: StrictInt = DEFAULT_TIMEOUT_S
    auto_pause: StrictBool = False
    auto_pause_memory: StrictBool = True
    auto_resume: AutoResume | None = None
    allow_internet_access: StrictBool | None = Field(None, alias="allow_internet_access")
    metadata: dict[str, str] | None = None
    env_vars: dict[EnvName, EnvValue] | None = None
    network: NetworkConfig | None = None
    iam: dict[str, Any] | None = None
    volume_mounts: list[VolumeMount] | None = None

    def to_request(self) -> NewSandbox:
        return NewSandbox(
            template=self.template_id,
            timeout=seconds(self.timeout),
            metadata=self.metadata,
            envs=self.env_vars or {},
            allow_internet=self.allow_internet_access,
            network=(self.network or NetworkConfig()).to_record(
                allow_internet=self.allow_internet_access
            ),
            on_timeout=OnTimeout.PAUSE if self.auto_pause else OnTimeout.KILL,
            pause_keeps_memory=self.auto_pause_memory,
            auto_resume=self.auto_resume is not None and self.auto_resume.enabled,
            volumes=tuple((mount.name, mount.path) for mount in self.volume_mounts or ()),
        )


class NewSandboxBodyV1(NewSandboxBody):
    """Request for a sandbox (v1), with a shorter default timeout."""

    timeout: StrictInt = DEFAULT_TIMEOUT_V1_S


class ConnectBody(WireModel):
    timeout: StrictInt = DEFAULT_TIMEOUT_S
    memory: StrictBool = True


class ResumeBody(WireModel):
    timeout: StrictInt = DEFAULT_TIMEOUT_V1_S
    memory: StrictBool = True


class PauseBody(WireModel):
    memory: StrictBool = True
    require_healthy_guest: StrictBool = False


class TimeoutBody(WireModel):
    timeout: Annotated[StrictInt, Field(ge=0)]


class RefreshBody(WireModel):
    duration: Annotated[StrictInt, Field(ge=0, le=3600)] = 15


class Sandbox(WireModel):
    """Response of create and connect."""

    template_id: str = Field(alias="templateID")
    sandbox_id: str = Field(alias="sandboxID")
    client_id: str = Field(CLIENT_ID, alias="clientID")
    alias: str
    envd_version: str = ENVD_VERSION
    envd_access_token: str
    traffic_access_token: str | None
    domain: str

    @classmethod
    def of(cls, record: SandboxRecord, domain: str) -> Self:
        return cls(
            template_id=record.template,
            sandbox_id=record.id,
            alias=record.template_name,
            envd_access_token=record.access_token,
            traffic_access_token=record.traffic_token,
            domain=domain,
        )


class ListedSandbox(WireModel):
    """A sandbox in a list."""

    template_id: str = Field(alias="templateID")
    sandbox_id: str = Field(alias="sandboxID")
    client_id: str = Field(CLIENT_ID, alias="clientID")
    alias: str
    started_at: datetime
    end_at: datetime
    cpu_count: int
    memory_mb: int = Field(alias="memoryMB")
    disk_size_mb: int = Field(alias="diskSizeMB")
    state: State
    state_reason: str
    envd_version: str = ENVD_VERSION
    metadata: dict[str, str] | None = None
    volume_mounts: list[VolumeMount] = Field(default_factory=list)

    @classmethod
    def fields_of(cls, record: SandboxRecord) -> dict[str, Any]:
        return {
            "template_id": record.template,
            "sandbox_id": record.id,
            "alias": record.template_name,
            "started_at": record.started_at,
            "end_at": record.ends_at,
            "cpu_count": record.resources.cpu_count,
            "memory_mb": record.resources.memory_mb,
            "disk_size_mb": record.resources.disk_mb,
            "state": record.state,
            "state_reason": record.reason,
            "metadata": record.metadata,
            "volume_mounts": [
                VolumeMount(name=mount.name, path=mount.path) for mount in record.volumes
            ],
        }

    @classmethod
    def of(cls, record: SandboxRecord) -> Self:
        return cls(**cls.fields_of(record))


class Lifecycle(WireModel):
    auto_resume: bool
    on_timeout: OnTimeout


class SandboxDetail(ListedSandbox):
    """All details of a sandbox."""

    envd_access_token: str
    allow_internet_access: bool | None
    domain: str | None
    network: dict[str, Any]
    lifecycle: Lifecycle
    pids_limit: int

    @classmethod
    def detail_of(cls, record: SandboxRecord, domain: str) -> Self:
        return cls(
            **cls.fields_of(record),
            envd_access_token=record.access_token,
            allow_internet_access=record.allow_internet,
            domain=domain,
            network=shown(record.network),
            lifecycle=Lifecycle(auto_resume=record.auto_resume, on_timeout=record.on_timeout),
            pids_limit=record.resources.pids,
        )


class Metric(WireModel):
    """One measurement of a sandbox."""

    timestamp: datetime
    timestamp_unix: int
    cpu_count: int
    cpu_used_pct: float
    mem_used: int
    mem_total: int
    mem_cache: int
    disk_used: int
    disk_total: int

    @classmethod
    def of(cls, usage: Usage) -> Self:
        return cls(
            timestamp=datetime.fromtimestamp(usage.at).astimezone(),
            timestamp_unix=int(usage.at),
            cpu_count=usage.cpu_count,
            cpu_used_pct=usage.cpu_used_pct,
            mem_used=usage.mem_used,
            mem_total=usage.mem_total,
            mem_cache=usage.mem_cache,
            disk_used=usage.disk_used,
            disk_total=usage.disk_total,
        )


class LogLine(WireModel):
    """A log entry for older clients, with its fields as JSON in a string."""

    timestamp: datetime
    line: str

    @classmethod
    def of(cls, entry: Entry) -> Self:
        standard = {"level": entry.level, "logger": _LOGGER, "message": entry.message}
        return cls(timestamp=entry.at, line=json.dumps({**entry.fields, **standard}))


class LogEntryBody(WireModel):
    timestamp: datetime
    level: Level
    message: str
    fields: dict[str, str]

    @classmethod
    def of(cls, entry: Entry) -> Self:
        return cls(
            timestamp=entry.at, level=entry.level, message=entry.message, fields=entry.fields
        )


class Logs(WireModel):
    logs: list[LogLine]
    log_entries: list[LogEntryBody]


class LogsV2(WireModel):
    logs: list[LogEntryBody]
