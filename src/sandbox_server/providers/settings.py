import ssl
from collections.abc import Sequence
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    field_validator,
    model_validator,
)

from sandbox_server.domain.capabilities import NAME
from sandbox_server.domain.templates import TemplateReference
from sandbox_server.providers.protocol.provider import Endpoint

DEFAULT_CAPACITY = 20


# Fields of the kind `e2b` that say something about its sandboxes or templates.
_OF_E2B = (
    *("sandbox_url", "paused_takes_place", "max_continuous_run_s", "public_traffic"),
    *("templates", "capabilities"),
)


class BackendKind(StrEnum):
    E2B = "e2b"
    BROWSERBASE = "browserbase"


class BackendSettings(BaseModel):
    """One provider of sandboxes: one that speaks E2B's protocol, or Browserbase, which has browsers only."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9-]{0,62}$",
        description="Name of the backend in requests, rules and records.",
    )
    kind: BackendKind = Field(
        BackendKind.E2B,
        description="`e2b`: a provider that speaks E2B's protocol. `browserbase`: Browserbase, for browsers only.",
    )
    api_key: SecretStr = Field(description="API key of the provider.")
    project_id: str | None = Field(
        None, description="Project for new sessions at Browserbase. Default: that of the API key."
    )
    domain: str = Field("e2b.app", description="Domain of the provider.")
    api_url: str | None = Field(
        None,
        description="URL of its API. Default: `https://api.{domain}`; of the kind `browserbase`, `https://api.browserbase.com`.",
    )
    sandbox_url: str | None = Field(
        None,
        description=(
            "One URL for all its sandboxes, if they have no names below the domain. E2B's own "
            "proxy accepts only `https://sandbox.{domain}`."
        ),
    )
    ca_cert: Path | None = Field(
        None,
        description="File with CA certificates to trust for this provider, in addition to the system's.",
    )
    capacity: int = Field(
        DEFAULT_CAPACITY, ge=0, description="Slots: sandboxes that may run there at once."
    )
    paused_takes_place: bool = Field(
        False, description="Count paused sandboxes as well, because they occupy memory."
    )
    max_continuous_run_s: int | None = Field(
        None,
        ge=60,
        description=(
            "Seconds that the provider lets a sandbox run without a pause; the server pauses and "
            "resumes it before that."
        ),
    )
    overflow_to: str | None = Field(
        None, description="Backend for sandboxes that find no free slot here."
    )
    public_traffic: bool = Field(
        False,
        description=(
            "Leave ports of sandboxes open to everyone who reaches the provider's own addresses; "
            "for providers that refuse `network.allowPublicTraffic`."
        ),
    )
    templates: tuple[str, ...] = Field(
        (),
        description=(
            "Names or ids of templates that all tenants may use although the provider neither "
            "lists nor finds them."
        ),
    )

    capabilities: dict[str, frozenset[Annotated[str, Field(pattern=NAME)]]] = Field(
        default_factory=dict,
        description=(
            "Capabilities of its templates by name, for templates that are not bundled with this server, for example "
            '`{"my-desktop": ["desktop", "gui"]}`.'
        ),
    )

    @field_validator("api_url", "sandbox_url")
    @classmethod
    def _require_http(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError("begins with http:// or https://")
        return url and url.rstrip("/")

    @field_validator("templates")
    @classmethod
    def _require_references(cls, templates: tuple[str, ...]) -> tuple[str, ...]:
        read = [TemplateReference.parse(template) for template in templates]
        if None in read:
            raise ValueError("A template is given as name, name:tag or namespace/name:tag.")
        return tuple(map(str, read))

    _trusted: bytes | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _read_certificates(self) -> Self:
        # Read at once, since the process that serves may not be allowed to read the file.
        if self.ca_cert is not None:
            try:
                self._trusted = self.ca_cert.read_bytes()
                ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(
                    cadata=self._trusted.decode()
                )
            except (OSError, ValueError) as error:
                raise ValueError(
                    f"The certificates in {self.ca_cert} cannot be read: {error}"
                ) from None
        return self

    @model_validator(mode="after")
    def _require_fields_of_kind(self) -> Self:
        is_e2b = self.kind is BackendKind.E2B
        others = ("project_id",) if is_e2b else _OF_E2B
        fields = type(self).model_fields
        foreign = [
            name
            for name in sorted(others)
            if getattr(self, name) != fields[name].get_default(call_default_factory=True)
        ]
        if foreign:
            raise ValueError(f"The kind {self.kind} does not have {', '.join(foreign)}.")
        return self

    @property
    def max_continuous_run(self) -> timedelta | None:
        seconds = self.max_continuous_run_s
        return None if seconds is None else timedelta(seconds=seconds)

    @property
    def _default_api_url(self) -> str:
        is_e2b = self.kind is BackendKind.E2B
        return f"https://api.{self.domain}" if is_e2b else "https://api.browserbase.com"

    def endpoint(self) -> Endpoint:
        """Build the endpoint of the provider."""
        return Endpoint(
            name=self.name,
            api_url=self.api_url or self._default_api_url,
            api_key=self.api_key.get_secret_value(),
            sandbox_url=self.sandbox_url,
            domain=self.domain,
            ca_cert=self._trusted,
            public_traffic=self.public_traffic,
        )


Several = TypeVar("Several", bound=Sequence[BackendSettings])


def require_consistent(backends: Several) -> Several:
    """Reject duplicate and unknown backend names."""
    names = [backend.name for backend in backends]
    for backend in backends:
        if names.count(backend.name) > 1:
            raise ValueError(f"There are two backends named {backend.name!r}.")
        if backend.overflow_to is not None and backend.overflow_to not in names:
            raise ValueError(
                f"Backend {backend.name!r} overflows to {backend.overflow_to!r}, which there is not."
            )
    return backends
