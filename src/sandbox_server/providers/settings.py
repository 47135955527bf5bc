import ssl
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Self, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    SecretStr,
    field_validator,
    model_validator,
)

from sandbox_server.domain.templates import TemplateReference
from sandbox_server.providers.protocol.provider import Endpoint

DEFAULT_CAPACITY = 20


class BackendSettings(BaseModel):
    """One provider of sandboxes that speaks E2B's protocol."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    name: str = Field(
        pattern=r"^[a-z0-9][a-z0-9-]{0,62}$",
        description="What requests, rules and records call it.",
    )
    api_key: SecretStr = Field(description="Key of the provider's API.")
    domain: str = Field("e2b.app", description="The provider's domain.")
    api_url: str | None = Field(
        None, description="Where its API is, if not at `https://api.{domain}`."
    )
    sandbox_url: str | None = Field(
        None,
        description="One address for all its sandboxes, if they are not at names below the domain. "
        "E2B's own proxy takes only `https://sandbox.{domain}`.",
    )
    ca_cert: Path | None = Field(
        None,
        description="A file with certificates that are trusted for this provider besides the "
        "machine's own.",
    )
    capacity: int = Field(
        DEFAULT_CAPACITY, ge=0, description="How many sandboxes may have a place there at once."
    )
    paused_takes_place: bool = Field(
        False, description="Whether paused sandboxes count, since their memory stays in use."
    )
    max_continuous_run_s: int | None = Field(
        None,
        ge=60,
        description="How long it lets a sandbox run without a pause; they are paused and resumed "
        "before that.",
    )
    overflow_to: str | None = Field(None, description="Where sandboxes go that find no place here.")
    public_traffic: bool = Field(
        False,
        description="Whether ports of sandboxes stay open to everybody who reaches the provider's own "
        "addresses: for providers that refuse `network.allowPublicTraffic`.",
    )
    templates: tuple[str, ...] = Field(
        (),
        description="Names or ids of templates there that all tenants may use though the provider "
        "neither lists nor finds them.",
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
        read = [TemplateReference.parse(one) for one in templates]
        if None in read:
            raise ValueError("A template is given as name, name:tag or namespace/name:tag.")
        return tuple(map(str, read))

    _trusted: bytes | None = PrivateAttr(None)

    @model_validator(mode="after")
    def _read_certificates(self) -> Self:
        # At once, since whoever serves later may not be allowed to read the file.
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

    @property
    def max_continuous_run(self) -> timedelta | None:
        seconds = self.max_continuous_run_s
        return None if seconds is None else timedelta(seconds=seconds)

    def endpoint(self) -> Endpoint:
        """Say where it is, and whom to trust there."""
        return Endpoint(
            name=self.name,
            api_url=self.api_url or f"https://api.{self.domain}",
            api_key=self.api_key.get_secret_value(),
            sandbox_url=self.sandbox_url,
            domain=self.domain,
            ca_cert=self._trusted,
            public_traffic=self.public_traffic,
        )


Several = TypeVar("Several", bound=Sequence[BackendSettings])


def require_consistent(backends: Several) -> Several:
    """Refuse settings that name a backend twice, or one that does not exist."""
    names = [backend.name for backend in backends]
    for backend in backends:
        if names.count(backend.name) > 1:
            raise ValueError(f"There are two backends named {backend.name!r}.")
        if backend.overflow_to is not None and backend.overflow_to not in names:
            raise ValueError(
                f"Backend {backend.name!r} overflows to {backend.overflow_to!r}, which there is not."
            )
    return backends
