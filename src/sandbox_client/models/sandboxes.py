import json
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from sandbox_client.models.services import ServicesRead
from sandbox_client.models.wire import (
    Envs,
    Labels,
    Name,
    RequestModel,
    ResponseModel,
    Seconds,
    Storable,
)

_LARGEST_SERVERS = 256 * 1024
_DEEPEST_SERVERS = 32
_MOST_RULES = 200
_MOST_VOLUMES = 32


class SandboxState(StrEnum):
    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMING = "resuming"
    STOPPING = "stopping"
    STOPPED = "stopped"
    FAILED = "failed"


class SandboxTarget(StrEnum):
    """What is wanted of a sandbox."""

    RUNNING = "running"
    PAUSED = "paused"
    GONE = "gone"


class OnTimeout(StrEnum):
    """What becomes of a sandbox whose time is up."""

    PAUSE = "pause"
    DELETE = "delete"


Addresses = Annotated[
    list[Annotated[Storable, Field(min_length=1, max_length=253)]], Field(max_length=_MOST_RULES)
]


class Network(RequestModel):
    """What a sandbox may reach; rules are addresses, networks and, to allow, names of hosts."""

    allow_internet: Annotated[bool, Field(strict=True)] | None = None
    allow_out: Addresses = Field(default_factory=list)
    deny_out: Addresses = Field(default_factory=list)


class Resources(RequestModel):
    """What a sandbox needs of its machine. What it gets is its template's, which must have as much."""

    cpu_count: Annotated[int, Field(ge=1, le=1024)] | None = None
    memory_mb: Annotated[int, Field(ge=16, le=16 * 1024 * 1024)] | None = None


def _small(servers: Mapping[str, Any]) -> Mapping[str, Any]:
    if _is_deeper(servers, _DEEPEST_SERVERS):
        raise ValueError(f"They may be nested {_DEEPEST_SERVERS} levels deep.")
    if len(json.dumps(servers)) > _LARGEST_SERVERS:
        raise ValueError(f"All together may have {_LARGEST_SERVERS // 1024} KiB.")
    return servers


def _is_deeper(value: Any, levels: int) -> bool:
    if isinstance(value, dict):
        return _is_deeper(list(value.values()), levels)
    if not isinstance(value, list):
        return False
    return levels == 0 or any(_is_deeper(one, levels - 1) for one in value)


McpServers = Annotated[
    dict[Name, dict[str, Any]],
    AfterValidator(_small),
    Field(description="MCP servers of your own, by name. They are kept encrypted like `envs`."),
]
Volumes = Annotated[
    dict[Annotated[Storable, Field(pattern="^/", max_length=1024)], Name],
    Field(
        max_length=_MOST_VOLUMES,
        description="Names of your tenant's volumes, by where each is mounted. At the provider, where "
        "they are made, each is called by your tenant's id, a hyphen and its name.",
    ),
]
Priority = Annotated[
    int, Field(ge=-1000, le=1000, description="Higher comes first; your API key has a maximum.")
]
AutoResume = Annotated[
    bool, Field(strict=True, description="Whether using it while it is paused resumes it.")
]
Timeout = Annotated[
    Seconds, Field(description="How long it may run; what happens then says `on_timeout`.")
]
IdleTimeout = Annotated[
    Seconds, Field(description="It is paused when nothing happened in it for so long.")
]


class SessionSandbox(RequestModel):
    """A sandbox to be, for a session that has none; what is left out is as your tenant's defaults say."""

    template: Name | None = None
    backend: Name | None = None
    agent_type: Name | None = None
    user_id: Name | None = None
    metadata: Labels = Field(default_factory=dict)
    envs: Envs = Field(default_factory=dict)
    timeout_s: Timeout | None = None
    on_timeout: OnTimeout | None = None
    idle_timeout_s: IdleTimeout | None = None
    auto_resume: AutoResume | None = None
    priority: Priority | None = None
    queue_timeout_s: (
        Annotated[Seconds, Field(description="How long it may wait for a place.")] | None
    ) = None
    network: Network | None = None
    resources: Resources | None = None
    volumes: Volumes = Field(default_factory=dict)
    mcp_servers: McpServers = Field(default_factory=dict)


class SandboxCreate(SessionSandbox):
    """A sandbox to be; what is left out is as your tenant's defaults say."""

    session_id: Name | None = None


class SandboxUpdate(RequestModel):
    """What is to change; what is left out stays as it is."""

    metadata: Annotated[Labels, Field(description="In place of all there was.")] | None = None
    timeout_s: (
        Annotated[
            Timeout,
            Field(description="It has exactly so much time from now on, be it less than before."),
        ]
        | None
    ) = None
    on_timeout: OnTimeout | None = None
    idle_timeout_s: (
        Annotated[
            IdleTimeout, Field(description="null: however quiet it is, it is not paused for that.")
        ]
        | None
    ) = None
    auto_resume: AutoResume | None = None
    priority: Priority | None = None
    mcp_servers: (
        Annotated[
            McpServers,
            Field(
                description="In place of all that were given; a running sandbox's services are told at once, "
                "a paused one's when it resumes."
            ),
        ]
        | None
    ) = None


class KeepAlive(RequestModel):
    """How long a sandbox is to be kept from its idle pause, though nothing happens in it."""

    awake_s: Seconds = 300
    timeout_s: (
        Annotated[Seconds, Field(description="It also has at least so much time from now on.")]
        | None
    ) = None


class Urls(ResponseModel):
    """Where a sandbox's own servers are reached through this one, with your key; in `ports`, put the port for `{port}`."""

    mcp: str
    code_server: str
    code_server_password: Annotated[
        str | None,
        Field(
            description="What code-server asks for; null for callers that may only read, and without services."
        ),
    ] = None
    agent: Annotated[str, Field(description="A WebSocket: the sandbox's agent server.")]
    ports: str


class QueuePlace(ResponseModel):
    """Where a sandbox stands that waits for a place: 1 is next."""

    position: int
    reason: str
    estimate_s: float | None


class SandboxRead(ResponseModel):
    """A sandbox. Its `target` is what is wanted of it, its `state` is what it is."""

    id: str
    state: SandboxState
    state_reason: str | None
    target: SandboxTarget
    template: str
    template_note: (
        Annotated[str, Field(description="Why it is not made from the default template.")] | None
    )
    backend: str | None
    agent_type: str | None
    user_id: str | None
    session_id: str | None
    metadata: dict[str, str]
    resources: Resources
    urls: Annotated[Urls, Field(description="null: it has no place yet, or has ended.")] | None
    created_at: datetime
    started_at: Annotated[datetime, Field(description="Since when it runs without a pause.")] | None
    last_activity_at: datetime | None
    idle_pause_at: (
        Annotated[
            datetime, Field(description="When it is paused if nothing happens in it any more.")
        ]
        | None
    )
    awake_until: Annotated[datetime, Field(description="Until then it is not idle.")] | None
    expires_at: (
        Annotated[
            datetime,
            Field(description="When its time is up; while it is paused, time stands still."),
        ]
        | None
    )
    remaining_s: Annotated[float, Field(description="The time it has left when it resumes.")] | None
    retain_until: (
        Annotated[datetime, Field(description="When it is deleted if nobody resumes it.")] | None
    )
    silent_since: (
        Annotated[
            datetime, Field(description="Since when it does not answer though it should run.")
        ]
        | None
    )
    ended_at: datetime | None
    timeout_s: float
    on_timeout: OnTimeout
    idle_timeout_s: float | None
    auto_resume: bool
    priority: int
    queue: QueuePlace | None
    services: (
        Annotated[
            ServicesRead, Field(description="null: its template starts none that we know of.")
        ]
        | None
    ) = None
