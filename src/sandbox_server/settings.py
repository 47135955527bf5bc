import os
import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic.fields import FieldInfo
from pydantic_settings import (
    BaseSettings,
    EnvSettingsSource,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
)

from sandbox_server.providers.settings import DEFAULT_CAPACITY, BackendSettings, require_consistent

PREFIX = "SANDBOX_SERVER_"

_SYSTEM_STATE = Path("/var/lib/sandbox-server")
# A host name; an IP address does not match.
_HOST = re.compile(r"([a-zA-Z0-9-]+\.)*[a-zA-Z][a-zA-Z0-9-]*(:[0-9]{1,5})?")
_SECRET = frozenset(
    {"database_url", "e2b_api_key", "backends", "encryption_keys", "metrics_token", "captcha_key"}
)


def default_state_dir() -> Path:
    """Return the default state directory: the system's for root, else the user's."""
    if os.geteuid() == 0:
        return _SYSTEM_STATE
    data_home = os.environ.get("XDG_DATA_HOME")
    base = Path(data_home) if data_home else Path.home() / ".local" / "share"
    return base / "sandbox-server"


def _split(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


def _below_which_names_may_be(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or _HOST.fullmatch(parts.netloc) is None:
        raise ValueError(
            "must be http:// or https:// with a host name; an IP address is not allowed"
        )
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("must not have a path, query or fragment")
    return url.rstrip("/")


Origin = Annotated[str, Field(pattern=r"^(\*|https?://[a-z0-9.:\[\]-]+[a-z0-9\]])$")]
Origins = Annotated[tuple[Origin, ...], NoDecode, BeforeValidator(_split)]
ForgeHost = Annotated[
    str, Field(pattern=r"^(https?://)?[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?(:[0-9]{1,5})?$")
]
Hosts = Annotated[tuple[ForgeHost, ...], NoDecode, BeforeValidator(_split)]
PublicUrl = Annotated[str, AfterValidator(_below_which_names_may_be)]
AbsolutePath = Annotated[Path, AfterValidator(Path.absolute)]


class _SecretFiles(EnvSettingsSource):
    """Reads secrets from the files named by variables with the suffix `_FILE`, as for containers and systemd."""

    def _load_env_vars(self) -> Mapping[str, str | None]:
        variables = {name: f"{variable_of(name)}_FILE" for name in _SECRET}
        return {
            variable_of(name).lower(): Path(file).read_text().strip()
            for name, variable in variables.items()
            if (file := os.environ.get(variable))
        }


class Settings(BaseSettings):
    """Settings of the server; each is an environment variable, and a flag unless it is secret."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        frozen=True,
        populate_by_name=True,
        # Environment files leave a setting out by an empty value.
        env_ignore_empty=True,
        hide_input_in_errors=True,
    )

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8100, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    public_url: PublicUrl | None = Field(
        None,
        description=(
            "Public URL of the server, for example `https://sandboxes.example.org`. Ports of "
            "sandboxes are at `{port}-{id}.` below its host, which needs a wildcard DNS record. "
            "Default: `http://localhost` with the port."
        ),
    )
    state_dir: AbsolutePath = Field(
        default_factory=default_state_dir,
        description="Directory for the database, the keys and the engine's files.",
    )

    database_url: SecretStr | None = Field(
        None,
        validation_alias="DATABASE_URL",
        description=(
            "PostgreSQL 15 or newer, as a libpq URL; several servers may share it. Default: an "
            "embedded PostgreSQL in the state directory."
        ),
    )
    database_pool: int = Field(
        20, ge=2, description="Maximum number of database connections, opened on demand."
    )

    e2b_api_key: SecretStr | None = Field(
        None,
        validation_alias="E2B_API_KEY",
        description="API key of an E2B-compatible provider; if set, no engine is started.",
    )
    e2b_api_url: str | None = Field(
        None,
        validation_alias="E2B_API_URL",
        description="URL of the provider's API. Default: `https://api.{E2B_DOMAIN}`.",
    )
    e2b_sandbox_url: str | None = Field(
        None,
        validation_alias="E2B_SANDBOX_URL",
        description=(
            "One URL for all sandboxes of the provider, if they have no names below its domain. "
            "E2B's own proxy accepts only `https://sandbox.{E2B_DOMAIN}`."
        ),
    )
    e2b_domain: str = Field(
        "e2b.app", validation_alias="E2B_DOMAIN", description="Domain of the provider."
    )
    backends: Annotated[tuple[BackendSettings, ...], AfterValidator(require_consistent)] = Field(
        (),
        description="Several providers, as a JSON list of backends; replaces the single provider.",
    )
    capacity: int = Field(
        DEFAULT_CAPACITY,
        ge=0,
        description="Slots of the engine or the single provider: sandboxes that may run at once.",
    )
    engine_dir: AbsolutePath | None = Field(
        None,
        description=(
            "Directory for the engine's sandboxes and images. Default: `engine` in the state "
            "directory for root, a directory owned by root for other users."
        ),
    )

    agent_template: bool | None = Field(
        None,
        description=(
            "Build the template `agent` at the first provider and use it as the default template."
            " Default: true with the server's own engine."
        ),
    )
    template_dir: AbsolutePath | None = Field(
        None,
        description=(
            "Directory with your own version of the bundled templates, laid out like the "
            "repository: `templates/e2b.toml` and the files it names. Default: the bundled ones."
        ),
    )

    configuration: AbsolutePath | None = Field(
        None,
        description=(
            "TOML file with the configurations of tenants: templates and limits by default, for desktops and browsers, and "
            "by agent type. Each start stores them, like `PUT /v1/configuration`."
        ),
    )

    encryption_keys: SecretStr | None = Field(
        None,
        description=(
            "Keys that encrypt secrets in the database: 32 bytes each in base64, separated by "
            "commas; the first one encrypts, all decrypt. Servers that share a database need the "
            "same keys. Default: a key generated once in `encryption.key` in the state directory."
        ),
    )
    allowed_origins: Origins = Field(
        (),
        description=(
            "Origins whose pages may call the API (CORS), for example `https://app.example.com`, "
            "separated by commas; `*` allows all."
        ),
    )
    forge_hosts: Hosts = Field(
        ("github.com", "api.github.com", "gitlab.com", "codeberg.org"),
        description=(
            "Hosts of forges (GitHub, GitLab, Forgejo, git servers) that this server sends requests to, "
            "separated by commas; `http://host:port` allows a forge without TLS. Tenants can add forges "
            "at these hosts only."
        ),
    )
    mirror_dir: AbsolutePath | None = Field(
        None,
        description="Directory for mirrors of repositories, a cache. Default: `mirrors` in the state directory.",
    )
    mirror_gb: int = Field(
        20, ge=1, le=100_000, description="Disk space for mirrors of repositories, in GiB."
    )
    lfs_checkout_mb: int = Field(
        256,
        ge=0,
        le=100_000,
        description=(
            "Most MiB of Git LFS that a checkout fetches into a sandbox with git-lfs. With more, large files stay pointers."
        ),
    )
    metrics_token: SecretStr | None = Field(
        None,
        description=(
            "Bearer token for `/metrics`. Default: no token; only local, unproxied requests are "
            "allowed."
        ),
    )
    max_body_mb: int = Field(
        16, ge=1, description="Maximum size of a request body that is read into memory, in MiB."
    )
    max_requests_per_tenant: int = Field(
        2000, ge=1, description="Maximum concurrent requests of a tenant per server."
    )
    max_streams_per_tenant: int = Field(
        2000,
        ge=1,
        description="Maximum concurrent event streams and WebSockets of a tenant per server.",
    )
    places: int = Field(
        64, ge=1, description="Maximum concurrent sandbox state changes per server."
    )
    lease_s: int = Field(
        15,
        ge=2,
        description="Seconds until other servers take over the work of a dead server.",
    )
    ended_days: int = Field(
        7, ge=0, description="Days to keep records of deleted and failed sandboxes."
    )
    output_days: int = Field(7, ge=0, description="Days to keep ended commands and their output.")
    command_output_mb: int = Field(
        4,
        ge=1,
        le=1024,
        description=(
            "Output to keep per stream of a command, in MiB: its beginning and its end. At most "
            "three times as much is written to the database, plus 64 KiB per second while the "
            "output continues."
        ),
    )
    browser_log_mb: int = Field(
        4,
        ge=0,
        le=1024,
        description=(
            "Logs to keep per browser session, in MiB as compressed: their beginning and their end. 0 keeps none."
        ),
    )
    browser_recording_mb: int = Field(
        32,
        ge=0,
        le=10_240,
        description=(
            "Pictures to keep per recorded browser session, in MiB: its beginning and its end. 0 records none."
        ),
    )
    captcha_url: str | None = Field(
        None,
        pattern=r"^https?://[^\s]+$",
        description=(
            "URL of your service that solves captchas in browser sessions unless `captcha` is false; docs/browsers.md "
            "describes its requests. Default: none are solved."
        ),
    )
    captcha_key: SecretStr | None = Field(
        None, description="Bearer token for the service that solves captchas."
    )
    save_days: int = Field(
        30, ge=0, description="Days to keep the saved work of tasks that have ended."
    )
    save_every_s: int = Field(
        300,
        ge=1,
        description="Seconds between two saves of a task's work while a run writes.",
    )
    desktop_grace_s: float = Field(
        15,
        ge=1,
        le=3600,
        description="Seconds after which a person loses the control of a desktop whose page was closed.",
    )
    recording_days: int = Field(
        7,
        ge=0,
        description="Days to keep recordings of desktops that have ended, at most as long as the record of their sandbox.",
    )
    recording_mb: int = Field(
        1024,
        ge=1,
        le=65536,
        description="MiB of desktop recordings to keep per sandbox. With more, the oldest is deleted.",
    )
    recording_copy_s: float = Field(
        60,
        ge=1,
        le=3600,
        description=(
            "Seconds between two copies of a desktop's recording while it grows: what is lost at "
            "most when its sandbox ends abruptly."
        ),
    )
    event_days: int = Field(30, ge=1, description="Days to keep events.")
    stop_timeout_s: int = Field(
        25,
        ge=1,
        description="Seconds that a stopping server waits for requests and for state changes.",
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="Minimum log level: `DEBUG`, `INFO`, `WARNING` or `ERROR`."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="`text`, or `json` with one object per line."
    )
    access_log: bool = Field(True, description="Log every request.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - not used
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, _SecretFiles(settings_cls)

    @property
    def url_from_outside(self) -> str:
        return self.public_url or f"http://localhost:{self.port}"

    @property
    def mirrors(self) -> Path:
        """The directory of the repositories' mirrors."""
        return self.mirror_dir or self.state_dir / "mirrors"

    @property
    def stop_timeout(self) -> timedelta:
        return timedelta(seconds=self.stop_timeout_s)


def variable_of(name: str) -> str:
    """Return the environment variable of a setting."""
    alias = Settings.model_fields[name].validation_alias
    return alias if isinstance(alias, str) else f"{PREFIX}{name.upper()}"


def flags() -> Iterator[tuple[str, FieldInfo]]:
    """List the settings with flags; secrets have none, since command lines are public."""
    for name, field in Settings.model_fields.items():
        if name not in _SECRET:
            yield name, field


def forget_variables() -> None:
    """Remove the settings from the environment, so that child processes do not inherit keys."""
    for name in Settings.model_fields:
        os.environ.pop(variable_of(name), None)
