import json
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, model_validator

from sandbox_client.models.desktops import DesktopOptions
from sandbox_client.models.services import ServicesRead
from sandbox_client.models.wire import (
    Capability,
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
    """The desired state of a sandbox; `gone` means deleted."""

    RUNNING = "running"
    PAUSED = "paused"
    GONE = "gone"


class OnTimeout(StrEnum):
    """The action at a sandbox's timeout."""

    PAUSE = "pause"
    DELETE = "delete"


Addresses = Annotated[
    list[Annotated[Storable, Field(min_length=1, max_length=253)]], Field(max_length=_MOST_RULES)
]


class Network(RequestModel):
    """Outbound network access. Rules are IP addresses, CIDR ranges and, in `allow_out`, host names."""

    allow_internet: Annotated[bool, Field(strict=True)] | None = None
    allow_out: Addresses = Field(default_factory=list)
    deny_out: Addresses = Field(default_factory=list)


class Resources(RequestModel):
    """Minimum resources of a sandbox. The template determines the actual resources and must provide at least these."""

    cpu_count: Annotated[int, Field(ge=1, le=1024)] | None = None
    memory_mb: Annotated[int, Field(ge=16, le=16 * 1024 * 1024)] | None = None


def _small(servers: Mapping[str, Any]) -> Mapping[str, Any]:
    if _is_deeper(servers, _DEEPEST_SERVERS):
        raise ValueError(f"MCP servers may be nested at most {_DEEPEST_SERVERS} levels deep.")
    if len(json.dumps(servers)) > _LARGEST_SERVERS:
        raise ValueError(f"MCP servers may have at most {_LARGEST_SERVERS // 1024} KiB in total.")
    return servers


def _is_deeper(value: Any, levels: int) -> bool:
    if isinstance(value, dict):
        return _is_deeper(list(value.values()), levels)
    if not isinstance(value, list):
        return False
    return levels == 0 or any(_is_deeper(item, levels - 1) for item in value)


McpServers = Annotated[
    dict[Name, dict[str, Any]],
    AfterValidator(_small),
    Field(description="Additional MCP servers, by name. Stored encrypted, like `envs`."),
]
Volumes = Annotated[
    dict[Annotated[Storable, Field(pattern="^/", max_length=1024)], Name],
    Field(
        max_length=_MOST_VOLUMES,
        description="Volumes to mount: mount path to name of the volume. At the provider a volume's name is prefixed "
        "with your tenant's id and a hyphen.",
    ),
]
Priority = Annotated[
    int,
    Field(
        ge=-1000,
        le=1000,
        description="Priority in the queue; higher starts first. The maximum depends on your API key.",
    ),
]
AutoResume = Annotated[
    bool, Field(strict=True, description="Whether requests to the paused sandbox resume it.")
]
Timeout = Annotated[
    Seconds, Field(description="Lifetime in seconds; when it expires, `on_timeout` applies.")
]
IdleTimeout = Annotated[
    Seconds, Field(description="Pause after this many seconds without activity.")
]


Capabilities = Annotated[
    list[Capability],
    Field(
        max_length=16,
        description="Capabilities that the template must have, for example `desktop`. Without `template`, they select it: "
        "your tenant's default where it has them, else the template with the fewest further ones.",
    ),
]
Branch = Annotated[Storable, Field(min_length=1, max_length=200)]
Directory = Annotated[Storable, Field(pattern="^/[^/]", max_length=1024)]


class SandboxRepository(RequestModel):
    """A repository to check out once the sandbox runs: its `id`, or its `name` (`owner/name`)."""

    id: Name | None = None
    name: Name | None = None
    ref: (
        Annotated[
            Branch, Field(description="Branch to start from. Default: the repository's default.")
        ]
        | None
    ) = None
    branch: (
        Annotated[Branch, Field(description="Branch to create there. Default: that of `ref`.")]
        | None
    ) = None
    push: Annotated[
        bool,
        Field(
            strict=True,
            description="Whether `git push` of `branch` reaches the forge. Everything else can only be fetched.",
        ),
    ] = False
    directory: (
        Annotated[Directory, Field(description="Default: the repository's name in `/home/user`.")]
        | None
    ) = None

    @model_validator(mode="after")
    def _require_one_name(self) -> Self:
        if (self.id is None) == (self.name is None):
            raise ValueError("Name the repository by either `id` or `name`.")
        if self.push and self.branch is None:
            raise ValueError("`push` needs the name of the `branch` that may be pushed.")
        return self


class CheckoutState(StrEnum):
    PENDING = "pending"
    READY = "ready"
    FAILED = "failed"


class SandboxCheckout(ResponseModel):
    """The repository of a sandbox, and whether it is checked out."""

    id: str
    name: str
    ref: str
    branch: str
    push: bool
    directory: str
    state: CheckoutState
    reason: (
        Annotated[
            str,
            Field(
                description="Why the checkout failed, or why large files (Git LFS) in it stay pointers."
            ),
        ]
        | None
    )
    commit: Annotated[str, Field(description="The commit that was checked out.")] | None


class SessionSandbox(RequestModel):
    """Parameters of the sandbox if the session has none yet. Omitted fields take your tenant's defaults."""

    template: Name | None = None
    capabilities: Capabilities = Field(default_factory=list)
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
        Annotated[Seconds, Field(description="Maximum time in the queue, in seconds.")] | None
    ) = None
    network: Network | None = None
    resources: Resources | None = None
    volumes: Volumes = Field(default_factory=dict)
    mcp_servers: McpServers = Field(default_factory=dict)
    repository: SandboxRepository | None = None
    desktop: (
        Annotated[
            DesktopOptions,
            Field(
                description="Settings of its desktop. Without `template`, one with the capability `desktop` is selected."
            ),
        ]
        | None
    ) = None


class SandboxCreate(SessionSandbox):
    """Parameters of a new sandbox. Omitted fields take your tenant's defaults."""

    session_id: Name | None = None


class SandboxUpdate(RequestModel):
    """Fields to change; omitted fields stay as they are."""

    metadata: Annotated[Labels, Field(description="Replaces all labels.")] | None = None
    timeout_s: (
        Annotated[
            Timeout,
            Field(description="New lifetime in seconds from now; may be shorter than before."),
        ]
        | None
    ) = None
    on_timeout: OnTimeout | None = None
    idle_timeout_s: (
        Annotated[IdleTimeout, Field(description="null disables the idle pause.")] | None
    ) = None
    auto_resume: AutoResume | None = None
    priority: Priority | None = None
    mcp_servers: (
        Annotated[
            McpServers,
            Field(
                description="Replaces all additional MCP servers. Applied immediately, or when a paused sandbox "
                "resumes."
            ),
        ]
        | None
    ) = None


class KeepAlive(RequestModel):
    """Prevents the idle pause for `awake_s` seconds."""

    awake_s: Seconds = 300
    timeout_s: (
        Annotated[
            Seconds,
            Field(description="Also extend the lifetime to at least this many seconds from now."),
        ]
        | None
    ) = None


class Urls(ResponseModel):
    """URLs of the servers inside a sandbox, used with your API key. Replace `{port}` in `ports` by a port number."""

    mcp: str
    code_server: str
    code_server_password: Annotated[
        str | None,
        Field(description="Password of code-server; null for read-only keys and without services."),
    ] = None
    agent: Annotated[str, Field(description="WebSocket URL of the sandbox's agent server.")]
    ports: str


class QueuePlace(ResponseModel):
    """Position of a queued sandbox; 1 is next."""

    position: int
    reason: str
    estimate_s: float | None


class SandboxRead(ResponseModel):
    """A sandbox. `state` is its current state, `target` the desired one."""

    id: str
    state: SandboxState
    state_reason: str | None
    target: SandboxTarget
    template: str
    template_note: (
        Annotated[str, Field(description="Why it was not created from the default template.")]
        | None
    )
    capabilities: Annotated[list[str], Field(description="Capabilities of its template.")] = Field(
        default_factory=list
    )
    backend: str | None
    agent_type: str | None
    user_id: str | None
    session_id: str | None
    metadata: dict[str, str]
    resources: Resources
    urls: (
        Annotated[
            Urls, Field(description="null while it is queued, and after it was deleted or failed.")
        ]
        | None
    )
    created_at: datetime
    started_at: (
        Annotated[datetime, Field(description="Start of the current run, since the last resume.")]
        | None
    )
    last_activity_at: datetime | None
    idle_pause_at: (
        Annotated[
            datetime, Field(description="When it will be paused if there is no further activity.")
        ]
        | None
    )
    awake_until: (
        Annotated[datetime, Field(description="It is not paused for being idle before this time.")]
        | None
    )
    expires_at: (
        Annotated[
            datetime,
            Field(description="End of its lifetime. The lifetime does not run while it is paused."),
        ]
        | None
    )
    remaining_s: (
        Annotated[float, Field(description="Seconds of lifetime left when it resumes.")] | None
    )
    retain_until: (
        Annotated[
            datetime, Field(description="When the paused sandbox is deleted unless it is resumed.")
        ]
        | None
    )
    silent_since: (
        Annotated[
            datetime, Field(description="Since when it is unresponsive although it should run.")
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
        Annotated[ServicesRead, Field(description="null if the template starts no known services.")]
        | None
    ) = None
    repository: SandboxCheckout | None = None
    cdp_url: (
        Annotated[
            str,
            Field(
                description="WebSocket of its browser for CDP clients, such as `connectOverCDP` of Playwright. Valid for an "
                "hour without your API key. null unless its template has a browser, and for read-only keys."
            ),
        ]
        | None
    ) = None
    webdriver_url: (
        Annotated[str, Field(description="Remote end of its browser for Selenium.")] | None
    ) = None
    live_url: (
        Annotated[str, Field(description="Page that shows its browser and takes input.")] | None
    ) = None
