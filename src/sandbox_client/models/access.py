from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from sandbox_client.models.sandboxes import OnTimeout, Resources
from sandbox_client.models.wire import Name, RequestModel, ResponseModel, Seconds, Storable

_MOST = 1_000_000


def _each_once(scopes: list["KeyScope"]) -> list["KeyScope"]:
    return sorted(set(scopes))


class KeyScope(StrEnum):
    """What a key may do: each includes what the one before it may.

    `read`: see sandboxes, names of files, and what commands, terminals and agents print. `sandboxes`: create, use and
    delete sandboxes, and read files in them. `admin`: keys, tenants and backends, of all tenants.
    """

    READ = "read"
    SANDBOXES = "sandboxes"
    ADMIN = "admin"


TenantName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
Scopes = Annotated[
    list[KeyScope], Field(min_length=1, max_length=len(KeyScope)), AfterValidator(_each_once)
]
MaxPriority = Annotated[
    int, Field(ge=-1000, le=1000, description="The highest priority it may ask for.")
]
Rate = Annotated[
    float,
    Field(
        gt=0,
        le=_MOST,
        allow_inf_nan=False,
        description="Requests per second to each server; null: as many as it likes.",
    ),
]
KeyName = Annotated[Storable, Field(max_length=200)]


class KeyCreate(RequestModel):
    """An API key to be."""

    tenant: TenantName | None = Field(None, description="Whose it is; your own if left out.")
    name: KeyName = ""
    scopes: Scopes = Field(default_factory=lambda: [KeyScope.SANDBOXES])
    max_priority: MaxPriority = 0
    rate_per_s: Rate | None = None


class KeyUpdate(RequestModel):
    """What is to change; what is left out stays as it is."""

    name: KeyName = ""
    scopes: Scopes = Field(default_factory=list)
    max_priority: MaxPriority = 0
    rate_per_s: Rate | None = None


class KeyRead(ResponseModel):
    """An API key, without its secret; `prefix` is how that begins."""

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
    """A new API key; its secret is told this once."""

    secret: str


class TenantDefaults(RequestModel):
    """What a tenant's sandboxes get that their requests say nothing of."""

    template: Name | None = None
    backend: Name | None = None
    timeout_s: Seconds | None = None
    idle_timeout_s: Seconds | None = None
    on_timeout: OnTimeout | None = None


class RuleMatch(RequestModel):
    """Which requests a rule is for; what is left out matches all."""

    agent_type: Name | None = None
    template: Name | None = None


class TenantRule(RequestModel):
    """Where the sandboxes go that it matches, and what they get."""

    match: RuleMatch = Field(default_factory=RuleMatch)
    backend: Name | None = None
    template: Name | None = None
    timeout_s: Seconds | None = None
    idle_timeout_s: Seconds | None = None
    on_timeout: OnTimeout | None = None
    resources: Resources | None = None


class TenantWrite(RequestModel):
    """What a tenant may have, and what its sandboxes are when their requests do not say."""

    max_running: Annotated[
        int, Field(ge=0, le=_MOST, description="Places its sandboxes may take at once.")
    ] = 100
    max_queued: Annotated[
        int, Field(ge=0, le=_MOST, description="Sandboxes that may wait for a place at once.")
    ] = 1000
    defaults: TenantDefaults = Field(default_factory=TenantDefaults)
    rules: Annotated[
        list[TenantRule], Field(max_length=100, description="The first that matches holds.")
    ] = Field(default_factory=list)

    def documents(self) -> dict[str, Any]:
        """Give its parts as they are stored, without what is left out."""
        return self.model_dump(mode="json", exclude_none=True)


class TenantRead(ResponseModel):
    id: str
    name: str
    max_running: int
    max_queued: int
    defaults: TenantDefaults
    rules: list[TenantRule]
    created_at: datetime


class LoginRead(ResponseModel):
    """A browser that is signed in, and the API key that it was signed in with."""

    id: str
    tenant: str
    key_id: str
    key_name: str
    key_prefix: Annotated[str, Field(description="How the key begins.")]
    scopes: list[KeyScope]
    expires_at: datetime
