import hashlib
import os
from datetime import timedelta
from ipaddress import IPv4Network
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict


def default_state_dir() -> Path:
    """Return the default state directory: the system's for root, otherwise the user's."""
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
    """Resource limits of a sandbox."""

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
        default_factory=default_state_dir, description="Directory for sandboxes and images."
    )
    images_dir: MountablePath | None = Field(
        None, description="Directory for images. Default: `images` in the state directory."
    )
    run_dir: MountablePath = Field(
        Path("/run/sandbox-engine"),
        description="Directory for sockets and namespaces; use a tmpfs.",
    )
    domain: str | None = Field(
        None,
        description=(
            "Domain of the engine: sandboxes are at `{port}-{id}.{domain}`, the API at "
            "`api.{domain}`; include the port if clients need one. Default: `localhost` with the "
            "engine's port."
        ),
    )
    tls_cert: Path | None = Field(
        None, description="TLS certificate (PEM); if set, the engine serves HTTPS."
    )
    tls_key: Path | None = Field(None, description="Private key (PEM) of the certificate.")
    local_tls: bool = Field(
        True,
        description=(
            "Also serve HTTPS on the port, with certificates of an authority of this machine, for names below "
            "`localhost`; only on a loopback address without `--domain` and `--tls-cert`."
        ),
    )
    api_key: str | None = Field(
        None,
        description="API key of the engine. Default: generated once in `api.key` in the state directory.",
    )
    runtime: str = Field("runc", description="OCI runtime: `runc` or `crun`.")
    certificates_dir: Path = Field(
        Path("/usr/local/share/ca-certificates"),
        description="Directory with additional CA certificates that sandboxes trust.",
    )
    cpu_count: int = Field(2, ge=1, description="CPUs per sandbox.")
    memory_mb: int = Field(1024, ge=32, description="Memory limit per sandbox, in MiB.")
    disk_mb: int = Field(10240, ge=64, description="Disk limit per sandbox, in MiB.")
    volume_mb: int = Field(10240, ge=64, description="Size of a new volume, in MiB.")
    pids: int = Field(1024, ge=16, description="Maximum processes and threads per sandbox.")
    min_free_memory_mb: int = Field(
        256,
        ge=0,
        description="Free memory of the machine, in MiB, below which no sandbox is started.",
    )
    min_free_disk_mb: int = Field(
        1024,
        ge=0,
        description=(
            "Free disk space of the machine, in MiB, below which no sandbox is started or "
            "resumed; below half of it, uploads are refused and sandboxes that write are paused."
        ),
    )
    image_mb: int = Field(20480, ge=1, description="Maximum unpacked size of a base image, in MiB.")
    insecure_registries: Names = Field(
        (),
        description=(
            "Registries to use without TLS or with any certificate, for example `127.0.0.1:5000`;"
            " separated by commas."
        ),
    )
    upload_mb: int = Field(
        10240, ge=1, description="Maximum size of an upload for a template build, in MiB."
    )
    upload_days: int = Field(
        7, ge=0, description="Days to keep uploaded files after their last use by a build."
    )
    return_memory_after_s: int = Field(
        10,
        ge=-1,
        description="Seconds after a pause until the sandbox's memory is moved to swap; -1 disables this.",
    )
    max_timeout_hours: int = Field(24, ge=1, description="Maximum timeout of a sandbox, in hours.")
    start_timeout_s: int = Field(
        300,
        ge=1,
        description="Seconds that a template's start command may take until its ready command succeeds.",
    )
    ready_sandboxes: int = Field(
        2,
        ge=0,
        le=64,
        description=(
            "Warm pool: sandboxes to keep ready per template, for the base template and recently "
            "used ones."
        ),
    )
    ready_templates: Names = Field(
        (),
        description=(
            "Warm pool: templates to keep sandboxes ready for even if they are not used, once "
            "they exist; separated by commas."
        ),
    )
    ready_memory_mb: int = Field(
        8192,
        ge=0,
        description="Warm pool: maximum total memory limit of its sandboxes, in MiB.",
    )
    max_builds: int = Field(2, ge=1, description="Maximum concurrent template builds; others wait.")
    build_timeout_minutes: int = Field(
        60, ge=1, description="Maximum duration of a template build, in minutes."
    )
    build_cache_days: int = Field(
        30, ge=0, description="Days to keep cached build layers that no build uses."
    )
    pool_size: int = Field(
        8, ge=0, le=256, description="Number of prepared disks and network links for new sandboxes."
    )
    subnet_pool: IPv4Network = Field(
        IPv4Network("10.128.0.0/9"), description="Address range for sandboxes."
    )
    allow_private: Networks = Field(
        (), description="Private address ranges that sandboxes may reach; separated by commas."
    )

    git_server: str | None = Field(
        None,
        pattern=r"^https?://[^/]+$",
        description=(
            "URL of the sandbox-server whose `/git` sandboxes reach as `http://git.sandbox`. "
            "Default: the server that started this engine."
        ),
    )

    @property
    def resources(self) -> Resources:
        """Resource limits of a sandbox."""
        return Resources(
            cpu_count=self.cpu_count,
            memory_mb=self.memory_mb,
            disk_mb=self.disk_mb,
            pids=self.pids,
        )

    @property
    def images(self) -> Path:
        """Directory of images."""
        return self.images_dir or self.state_dir / "images"

    @property
    def git_server_file(self) -> Path:
        """Where a server that starts this engine writes its URL."""
        return self.state_dir / "git-server"

    @property
    def upload_lifetime(self) -> timedelta:
        return timedelta(days=self.upload_days)

    @property
    def serves_local_tls(self) -> bool:
        is_local = self.host == "localhost" or self.host.startswith("127.") or self.host == "::1"
        return self.local_tls and is_local and self.domain is None and self.tls_cert is None

    @property
    def local_authority(self) -> Path:
        return self.state_dir / "tls"

    @property
    def instance(self) -> str:
        """Eight hex digits that distinguish this engine's kernel objects from other engines'."""
        return hashlib.sha256(os.fsencode(self.state_dir)).hexdigest()[:8]

    @property
    def cgroup(self) -> str:
        """Parent of the sandboxes' control groups."""
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
