import hashlib
import os
from datetime import timedelta
from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


def default_state_dir() -> Path:
    """Find where state lives when nobody says: the system's place for root, else the user's."""
    if os.geteuid() == 0:
        return Path("/var/lib/sandbox-server")
    data_home = os.environ.get("XDG_DATA_HOME")
    base = Path(data_home) if data_home else Path.home() / ".local" / "share"
    return base / "sandbox-server"


def _mountable(path: Path) -> Path:
    absolute = path.absolute()
    if set(str(absolute)) & set(",:\\\n"):
        raise ValueError("must not contain a comma, a colon, a backslash or a newline")
    return absolute


def _split(value: object) -> object:
    return [part for part in value.split(",") if part] if isinstance(value, str) else value


Networks = Annotated[tuple[IPv4Network, ...], NoDecode, BeforeValidator(_split)]
Names = Annotated[tuple[str, ...], NoDecode, BeforeValidator(_split)]
MountablePath = Annotated[Path, AfterValidator(_mountable)]


class Resources(BaseModel):
    """What one sandbox may use."""

    model_config = ConfigDict(frozen=True)

    cpu_count: int
    memory_mb: int
    disk_mb: int
    pids: int


class Settings(BaseSettings):
    """Settings of the engine; each is a flag of `serve` and an environment variable."""

    model_config = SettingsConfigDict(env_prefix="SANDBOX_ENGINE_", frozen=True)

    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(3400, ge=0, le=65535, description="Port to listen on; 0 takes a free one.")
    state_dir: MountablePath = Field(
        default_factory=default_state_dir, description="Where sandboxes and images are kept."
    )
    images_dir: MountablePath | None = Field(
        None, description="Where images are kept, if not in the state directory."
    )
    run_dir: MountablePath = Field(
        Path("/run/sandbox-engine"), description="Where sockets and namespaces live; not on disk."
    )
    domain: str | None = Field(
        None,
        description="Sandboxes answer at `{port}-{id}.{domain}`, the API at `api.{domain}`; with a "
        "port if callers need one. None given: `localhost` with the engine's port.",
    )
    tls_cert: Path | None = Field(
        None, description="Certificate (PEM); with it the engine serves HTTPS."
    )
    tls_key: Path | None = Field(None, description="Private key (PEM) of the certificate.")
    api_key: str | None = Field(
        None,
        description="The key callers send; none given: made once and kept in `api.key` in the "
        "state directory.",
    )
    runtime: str = Field("runc", description="OCI runtime to drive: `runc` or `crun`.")
    certificates_dir: Path = Field(
        Path("/usr/local/share/ca-certificates"),
        description="Additional CA certificates that sandboxes trust too.",
    )
    cpu_count: int = Field(2, ge=1, description="CPUs a sandbox may use.")
    memory_mb: int = Field(1024, ge=32, description="Memory a sandbox may use, in MiB.")
    disk_mb: int = Field(10240, ge=64, description="Disk a sandbox may fill, in MiB.")
    volume_mb: int = Field(10240, ge=64, description="What a new volume may hold, in MiB.")
    pids: int = Field(1024, ge=16, description="Processes and threads a sandbox may have.")
    min_free_memory_mb: int = Field(
        256, ge=0, description="Memory of the machine, in MiB, below which nothing is started."
    )
    min_free_disk_mb: int = Field(
        1024,
        ge=0,
        description="Disk of the machine, in MiB, below which nothing is started or resumed; below "
        "half of it uploads are refused and sandboxes that write are paused.",
    )
    image_mb: int = Field(
        20480, ge=1, description="The largest image that a template may build on, unpacked, in MiB."
    )
    insecure_registries: Names = Field(
        (),
        description="Registries that are asked without TLS or with any certificate, "
        "such as `127.0.0.1:5000`.",
    )
    upload_mb: int = Field(
        10240, ge=1, description="The largest upload of files for a template's build, in MiB."
    )
    upload_days: int = Field(
        7, ge=0, description="Days that uploaded files are kept after a build last used them."
    )
    return_memory_after_s: int = Field(
        10,
        ge=-1,
        description="How long after a pause a sandbox's memory moves to the machine's swap, in "
        "seconds; -1 never.",
    )
    max_timeout_hours: int = Field(
        24, ge=1, description="The longest timeout a caller may ask for."
    )
    start_timeout_s: int = Field(
        300,
        ge=1,
        description="How long a template's start command may take until its ready command holds, in "
        "seconds.",
    )
    ready_sandboxes: int = Field(
        2,
        ge=0,
        le=64,
        description="Sandboxes kept ready of the base template and of each one used lately.",
    )
    ready_templates: Names = Field(
        (),
        description="Templates of which sandboxes are kept ready too, as soon as there are such "
        "templates, whether anybody uses them or not; separated by commas.",
    )
    ready_memory_mb: int = Field(
        8192,
        ge=0,
        description="Memory that all ready sandboxes together may come to use, in MiB.",
    )
    max_builds: int = Field(2, ge=1, description="Template builds at once; others wait.")
    build_timeout_minutes: int = Field(
        60, ge=1, description="How long a template build may take, in minutes."
    )
    build_cache_days: int = Field(
        30, ge=0, description="How long the layers of build steps are kept that no build uses."
    )
    pool_size: int = Field(
        8, ge=0, le=256, description="Prepared disks and networks kept ready for new sandboxes."
    )
    subnet_pool: IPv4Network = Field(
        IPv4Network("10.128.0.0/9"), description="Range that sandbox addresses are taken from."
    )
    allow_private: Networks = Field(
        (), description="Private ranges that sandboxes may reach in spite of the firewall."
    )

    @property
    def resources(self) -> Resources:
        """What one sandbox may use."""
        return Resources(
            cpu_count=self.cpu_count,
            memory_mb=self.memory_mb,
            disk_mb=self.disk_mb,
            pids=self.pids,
        )

    @property
    def images(self) -> Path:
        """Where images are kept."""
        return self.images_dir or self.state_dir / "images"

    @property
    def upload_lifetime(self) -> timedelta:
        return timedelta(days=self.upload_days)

    @property
    def instance(self) -> str:
        """Eight hex digits that tell this engine's kernel objects from another engine's."""
        return hashlib.sha256(os.fsencode(self.state_dir)).hexdigest()[:8]

    @property
    def cgroup(self) -> str:
        """The control group that the sandboxes' own are in."""
        return f"sandbox-engine-{self.instance}"

    @property
    def instance_run_dir(self) -> Path:
        return self.run_dir / self.instance

    @property
    def max_timeout(self) -> timedelta:
        return timedelta(hours=self.max_timeout_hours)

    @property
    def build_timeout(self) -> timedelta:
        return timedelta(minutes=self.build_timeout_minutes)

    @property
    def build_cache_age(self) -> timedelta:
        return timedelta(days=self.build_cache_days)

    @property
    def return_memory_after(self) -> timedelta:
        return timedelta(seconds=self.return_memory_after_s)

    @property
    def start_timeout(self) -> timedelta:
        return timedelta(seconds=self.start_timeout_s)
