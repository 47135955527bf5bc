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
# A name whose last part no address has.
_HOST = re.compile(r"([a-zA-Z0-9-]+\.)*[a-zA-Z][a-zA-Z0-9-]*(:[0-9]{1,5})?")
_SECRET = frozenset({"database_url", "e2b_api_key", "backends", "encryption_keys", "metrics_token"})


def default_state_dir() -> Path:
    """Find where state lives when nobody says: the system's place for root, else the user's."""
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
        raise ValueError("is http:// or https:// and the name of a host, which no address is")
    if parts.path.strip("/") or parts.query or parts.fragment:
        raise ValueError("ends with the host and its port")
    return url.rstrip("/")


Origin = Annotated[str, Field(pattern=r"^(\*|https?://[a-z0-9.:\[\]-]+[a-z0-9\]])$")]
Origins = Annotated[tuple[Origin, ...], NoDecode, BeforeValidator(_split)]
PublicUrl = Annotated[str, AfterValidator(_below_which_names_may_be)]
AbsolutePath = Annotated[Path, AfterValidator(Path.absolute)]


class _SecretFiles(EnvSettingsSource):
    """Reads what is secret from the files that variables with `_FILE` name, as containers and systemd hand it out."""

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
        # A variable that is set and empty is how files of variables leave something out.
        env_ignore_empty=True,
        hide_input_in_errors=True,
    )

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8100, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    public_url: PublicUrl | None = Field(
        None,
        description="Where the server is reached from outside, such as `https://sandboxes.example.org`; "
        "ports of sandboxes are reached at `{port}-{id}.` below it, which DNS has to know. None given: "
        "`http://localhost` with the port.",
    )
    state_dir: AbsolutePath = Field(
        default_factory=default_state_dir,
        description="Where the database, the keys and the engine's files are kept.",
    )

    database_url: SecretStr | None = Field(
        None,
        validation_alias="DATABASE_URL",
        description="PostgreSQL 15 or newer, as a libpq URL; none given: one of our own in the state "
        "directory. Any number of servers may share one.",
    )
    database_pool: int = Field(
        20, ge=2, description="Connections to the database at the most, opened as they are needed."
    )

    e2b_api_key: SecretStr | None = Field(
        None,
        validation_alias="E2B_API_KEY",
        description="Key of a provider that speaks E2B's protocol; with it no engine is started.",
    )
    e2b_api_url: str | None = Field(
        None,
        validation_alias="E2B_API_URL",
        description="Where that provider's API is, if not at `https://api.{E2B_DOMAIN}`.",
    )
    e2b_sandbox_url: str | None = Field(
        None,
        validation_alias="E2B_SANDBOX_URL",
        description="One address for all its sandboxes, if they are not at names below its domain. "
        "E2B's own proxy takes only `https://sandbox.{E2B_DOMAIN}`.",
    )
    e2b_domain: str = Field(
        "e2b.app", validation_alias="E2B_DOMAIN", description="That provider's domain."
    )
    backends: Annotated[tuple[BackendSettings, ...], AfterValidator(require_consistent)] = Field(
        (),
        description="Several providers, as a JSON list of objects with the fields below; they take the "
        "place of the one above.",
    )
    capacity: int = Field(
        DEFAULT_CAPACITY,
        ge=0,
        description="Sandboxes that may have a place at once at the engine, or at the provider above.",
    )
    engine_dir: AbsolutePath | None = Field(
        None,
        description="Where the engine keeps sandboxes and images; none given: `engine` in the state "
        "directory of root, a directory of root's for any other user.",
    )

    agent_template: bool | None = Field(
        None,
        description="Whether the template `agent` is built at the first provider, and sandboxes are made "
        "from it where nobody names another. None given: at an engine of the server's own.",
    )
    template_dir: AbsolutePath | None = Field(
        None,
        description="Where the templates that come with the server are made from, laid out as its "
        "repository is: `templates/e2b.toml` and what that needs. None given: what came with it.",
    )

    encryption_keys: SecretStr | None = Field(
        None,
        description="Keys that seal secrets in the database, 32 bytes each in base64, separated by "
        "commas; the first one seals. None given: one that is made once and kept in `encryption.key` "
        "in the state directory. Servers that share a database need the same.",
    )
    allowed_origins: Origins = Field(
        (),
        description="Origins whose pages may call the API, such as `https://app.example.com`, separated "
        "by commas; `*` means all.",
    )
    metrics_token: SecretStr | None = Field(
        None,
        description="What `/metrics` wants as `Authorization: Bearer`. None given: nothing, and only "
        "the machine itself is answered, where no proxy asks.",
    )
    max_body_mb: int = Field(
        16, ge=1, description="The largest body of a request that is read at once, in MiB."
    )
    max_requests_per_tenant: int = Field(
        2000, ge=1, description="Requests of one tenant that one server works on at once."
    )
    max_streams_per_tenant: int = Field(
        2000,
        ge=1,
        description="Streams of events and WebSockets of one tenant that one server keeps open at once.",
    )
    places: int = Field(
        64, ge=1, description="Transitions of sandboxes that one server works on at once."
    )
    lease_s: int = Field(
        15,
        ge=2,
        description="How long the work of a server that is gone waits until another goes on with it.",
    )
    ended_days: int = Field(7, ge=0, description="Days that sandboxes which ended stay on record.")
    output_days: int = Field(
        7, ge=0, description="Days that commands which ended are kept with their output."
    )
    command_output_mb: int = Field(
        4,
        ge=1,
        le=1024,
        description="How much of each output of a command is kept, in MiB: its beginning and its end. "
        "At most three times as much is written to the database, and 64 KiB per second of an output that goes on.",
    )
    event_days: int = Field(30, ge=1, description="Days that events are kept.")
    stop_timeout_s: int = Field(
        25, ge=1, description="How long requests and transitions may take to finish at a stop."
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(
        "INFO", description="What is logged: `DEBUG`, `INFO`, `WARNING` or `ERROR`."
    )
    log_format: Literal["text", "json"] = Field(
        "text", description="`text` for people or `json`, one object per line."
    )
    access_log: bool = Field(True, description="Log a line per request.")

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,  # noqa: ARG003 - there are none
        file_secret_settings: PydanticBaseSettingsSource,  # noqa: ARG003
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return init_settings, env_settings, _SecretFiles(settings_cls)

    @property
    def url_from_outside(self) -> str:
        return self.public_url or f"http://localhost:{self.port}"

    @property
    def stop_timeout(self) -> timedelta:
        return timedelta(seconds=self.stop_timeout_s)


def variable_of(name: str) -> str:
    """Name the environment variable of a setting."""
    alias = Settings.model_fields[name].validation_alias
    return alias if isinstance(alias, str) else f"{PREFIX}{name.upper()}"


def flags() -> Iterator[tuple[str, FieldInfo]]:
    """List the settings that are flags too: what is secret is not, since all can see a command."""
    for name, field in Settings.model_fields.items():
        if name not in _SECRET:
            yield name, field


def forget_variables() -> None:
    """Take the settings out of the environment, so that nothing we load or start finds a key there."""
    for name in Settings.model_fields:
        os.environ.pop(variable_of(name), None)
