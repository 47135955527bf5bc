import secrets
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from sandbox_engine.records.catalog import Template
from sandbox_engine.records.sandbox import (
    IdempotencyRecord,
    MountRecord,
    NetworkRecord,
    OnTimeout,
    SandboxRecord,
)
from sandbox_engine.system.ids import new_id
from sandbox_engine.system.settings import Resources, Settings


@dataclass(frozen=True)
class NewSandbox:
    """Parameters of a new sandbox."""

    template: str
    timeout: timedelta
    metadata: dict[str, str] | None = None
    envs: dict[str, str] = field(default_factory=dict)
    allow_internet: bool | None = None
    network: NetworkRecord = field(default_factory=NetworkRecord)
    on_timeout: OnTimeout = OnTimeout.KILL
    pause_keeps_memory: bool = True
    auto_resume: bool = False
    volumes: tuple[tuple[str, str], ...] = ()  # names and mount paths

    @property
    def is_private(self) -> bool:
        """Whether its ports require the traffic token."""
        return self.network.allow_public_traffic is False


def new_record(
    request: NewSandbox,
    template: Template,
    *,
    settings: Settings,
    volumes: tuple[MountRecord, ...] = (),
    idempotency: IdempotencyRecord | None = None,
) -> SandboxRecord:
    """Create the record for a request and its template."""
    now = datetime.now(UTC)
    return SandboxRecord(
        id=new_id(),
        template=template.id,
        template_name=template.name,
        layers=template.image.layers,
        template_envs=dict(template.image.env),
        user=template.image.user,
        workdir=template.image.workdir,
        start_command=template.start_command,
        ready_command=template.ready_command,
        base=template.base,
        metadata=request.metadata,
        envs=request.envs,
        resources=_resources(template, settings),
        volumes=volumes,
        allow_internet=request.allow_internet,
        network=request.network,
        access_token=secrets.token_hex(32),
        traffic_token=secrets.token_hex(32) if request.is_private else None,
        created_at=now,
        started_at=now,
        ends_at=now + request.timeout,
        timeout=request.timeout,
        on_timeout=request.on_timeout,
        pause_keeps_memory=request.pause_keeps_memory,
        auto_resume=request.auto_resume,
        idempotency=idempotency,
    )


def _resources(template: Template, settings: Settings) -> Resources:
    requested = {"cpu_count": template.cpu_count, "memory_mb": template.memory_mb}
    overrides = {name: value for name, value in requested.items() if value is not None}
    return settings.resources.model_copy(update=overrides)
