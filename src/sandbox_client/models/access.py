from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from sandbox_client.models.desktops import DesktopRecordingOptions, DesktopResolution, Dpi
from sandbox_client.models.sandboxes import Capabilities, McpServers, OnTimeout, Resources
from sandbox_client.models.wire import Name, RequestModel, ResponseModel, Seconds, Storable

_MOST = 1_000_000
_MOST_AGENT_TYPES = 100
_MOST_PROXIES = 100
_LONGEST_TICKET = timedelta(hours=12)


def _each_once(scopes: list["KeyScope"]) -> list["KeyScope"]:
    return sorted(set(scopes))


class KeyScope(StrEnum):
    """Permissions of a key; each scope includes the previous one.

    `read`: list sandboxes and file names, and read the output of commands, terminals and agents. `sandboxes`: create,
    use and delete sandboxes, and read their files. `admin`: manage keys, tenants and backends of all tenants.
    """

    READ = "read"
    SANDBOXES = "sandboxes"
    ADMIN = "admin"


TenantName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
Scopes = Annotated[
    list[KeyScope], Field(min_length=1, max_length=len(KeyScope)), AfterValidator(_each_once)
]
MaxPriority = Annotated[
    int,
    Field(ge=-1000, le=1000, description="Highest priority that requests with this key may use."),
]
Rate = Annotated[
    float,
    Field(
        gt=0,
        le=_MOST,
        allow_inf_nan=False,
        description="Requests per second to each server; null: no limit.",
    ),
]
KeyName = Annotated[Storable, Field(max_length=200)]


class KeyCreate(RequestModel):
    """Parameters of a new API key."""

    tenant: TenantName | None = Field(None, description="Tenant of the key. Default: your own.")
    name: KeyName = ""
    scopes: Scopes = Field(default_factory=lambda: [KeyScope.SANDBOXES])
    max_priority: MaxPriority = 0
    rate_per_s: Rate | None = None


class KeyUpdate(RequestModel):
    """Fields to change; omitted fields stay as they are."""

    name: KeyName = ""
    scopes: Scopes = Field(default_factory=list)
    max_priority: MaxPriority = 0
    rate_per_s: Rate | None = None


class KeyRead(ResponseModel):
    """An API key without its secret; `prefix` is the start of the secret."""

    id: str
    tenant: str
    name: str
    prefix: str
    scopes: list[KeyScope]
    max_priority: int
    rate_per_s: float | None
    created_at: datetime
    last_used_at: datetime | None
    revoked_at: datetime | None


class KeyCreated(KeyRead):
    """A new API key with its secret, which is shown only once."""

    secret: str


class SandboxDefaults(RequestModel):
    """Values for what a request omits."""

    template: Name | None = None
    backend: Name | None = None
    timeout_s: Seconds | None = None
    idle_timeout_s: Seconds | None = None
    on_timeout: OnTimeout | None = None


class TemplateDefaults(SandboxDefaults):
    """Values for what a request omits, with a template or the capabilities that select it."""

    capabilities: (
        Annotated[
            Capabilities,
            Field(description="Capabilities that select the template, instead of `template`."),
        ]
        | None
    ) = None

    @model_validator(mode="after")
    def _require_at_most_one(self) -> Self:
        if self.template is not None and self.capabilities is not None:
            raise ValueError("Set either `template` or `capabilities`.")
        return self


class TenantDefaults(TemplateDefaults):
    """Defaults for requests of a tenant."""

    desktop: (
        Annotated[
            SandboxDefaults,
            Field(
                description="For sandboxes with the capability `desktop`, requested without a template."
            ),
        ]
        | None
    ) = None
    browser: (
        Annotated[
            SandboxDefaults,
            Field(
                description="For sandboxes with the capability `browser`, requested without a template."
            ),
        ]
        | None
    ) = None


class RuleMatch(RequestModel):
    """Requests to which a rule applies; omitted fields match everything."""

    agent_type: Name | None = None
    template: Name | None = None


class TenantRule(TemplateDefaults):
    """Backend, template and limits of matching sandboxes."""

    match: RuleMatch = Field(default_factory=RuleMatch)
    resources: Resources | None = None


class TenantWrite(RequestModel):
    """Quotas, defaults and rules of a tenant."""

    max_running: Annotated[
        int, Field(ge=0, le=_MOST, description="Maximum number of capacity slots in use.")
    ] = 100
    max_queued: Annotated[
        int, Field(ge=0, le=_MOST, description="Maximum number of queued sandboxes.")
    ] = 1000
    defaults: TenantDefaults = Field(default_factory=TenantDefaults)
    rules: Annotated[
        list[TenantRule], Field(max_length=100, description="The first matching rule applies.")
    ] = Field(default_factory=list)

    def documents(self) -> dict[str, Any]:
        """Return the parts as stored, without omitted fields."""
        return self.model_dump(mode="json", exclude_none=True)


class TenantRead(ResponseModel):
    id: str
    name: str
    max_running: int
    max_queued: int
    defaults: TenantDefaults
    rules: list[TenantRule]
    created_at: datetime


class DesktopValues(RequestModel):
    """Settings of desktops."""

    resolution: DesktopResolution | None = None
    dpi: Dpi | None = None
    stream: Annotated[bool, Field(strict=True)] | None = None
    recording: DesktopRecordingOptions | None = None


class BrowserProxy(RequestModel):
    """An upstream proxy of browser sessions."""

    type: Annotated[
        Literal["external", "none"],
        Field(description="`none`: without a proxy, for the domains of `domain_pattern`."),
    ] = "external"
    server: Storable | None = None
    username: Storable | None = None
    password: Annotated[Storable, Field(description="Shown as a mask.")] | None = None
    domain_pattern: (
        Annotated[Storable, Field(description="Domains that it is for. Default: all.")] | None
    ) = None

    @model_validator(mode="after")
    def _require_server(self) -> Self:
        if self.type == "external" and not self.server:
            raise ValueError("A proxy of the type `external` needs a `server`.")
        return self


class BrowserValues(RequestModel):
    """Settings of browser sessions."""

    proxies: (
        Annotated[
            list[BrowserProxy],
            Field(
                max_length=_MOST_PROXIES,
                description="Proxies of sessions that name none. The first match applies.",
            ),
        ]
        | None
    ) = None
    captcha: (
        Annotated[
            bool, Field(strict=True, description="Whether the server's captcha solver is used.")
        ]
        | None
    ) = None


class DesktopSection(SandboxDefaults, DesktopValues):
    """Values of desktops, and of the sandboxes that are requested by the capability `desktop`."""


DefaultMcpServers = Annotated[
    McpServers,
    Field(
        description="MCP servers behind the tool server, by name; those of requests with the same name precede. Stored encrypted, and "
        "values of `env` and `headers` are shown as a mask."
    ),
]


class BrowserSection(SandboxDefaults, BrowserValues):
    """Values of browser sessions, and of the sandboxes that are requested by the capability `browser`."""


class DefaultSection(TemplateDefaults):
    """Values for what any request omits."""

    mcp_servers: DefaultMcpServers | None = None


class AgentTypeDefaults(TemplateDefaults):
    """Values for what requests with this `agent_type` omit."""

    resources: Resources | None = None
    desktop: DesktopValues | None = None
    browser: BrowserValues | None = None
    mcp_servers: DefaultMcpServers | None = None


class Configuration(RequestModel):
    """Which templates and limits the sandboxes of a tenant get. A request's own fields take precedence, then `agent_types`."""

    default: Annotated[DefaultSection, Field(description="For all sandboxes.")] = Field(
        default_factory=DefaultSection
    )
    desktop: Annotated[
        DesktopSection,
        Field(
            description="For sandboxes with the capability `desktop`, requested without a template; "
            "its settings of desktops for every sandbox with a desktop."
        ),
    ] = Field(default_factory=DesktopSection)
    browser: Annotated[
        BrowserSection,
        Field(
            description="For browser sessions, and sandboxes with the capability `browser`, requested without a template."
        ),
    ] = Field(default_factory=BrowserSection)
    agent_types: Annotated[
        dict[Name, AgentTypeDefaults],
        Field(max_length=_MOST_AGENT_TYPES, description="By the `agent_type` of requests."),
    ] = Field(default_factory=dict)


class LoginRead(ResponseModel):
    """A browser session and the API key that was used to log in."""

    id: str
    tenant: str
    key_id: str
    key_name: str
    key_prefix: Annotated[str, Field(description="Start of the key's secret.")]
    scopes: list[KeyScope]
    expires_at: datetime


class TicketScope(StrEnum):
    """The rights of a ticket; `sandboxes` includes typing into terminals."""

    READ = "read"
    SANDBOXES = "sandboxes"


class TicketCreate(RequestModel):
    """Parameters of a new ticket."""

    scope: TicketScope = TicketScope.READ
    sandbox_id: Annotated[
        Name | None,
        Field(description="Restrict the ticket to this sandbox. Default: all of your sandboxes."),
    ] = None
    ttl_s: Annotated[
        float,
        Field(
            ge=1,
            le=_LONGEST_TICKET.total_seconds(),
            allow_inf_nan=False,
            strict=True,
            description="Lifetime in seconds. Streams end with the ticket, and browsers reconnect with the same ticket: "
            "choose it as long as the page stays open.",
        ),
    ] = 3600


class TicketCreated(ResponseModel):
    """A new ticket, which is shown only once."""

    ticket: str
    scope: TicketScope
    sandbox_id: str | None
    expires_at: datetime
