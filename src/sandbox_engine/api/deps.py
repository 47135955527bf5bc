import hmac
import re
from typing import Annotated, cast

from fastapi import Depends, Header, Path, Request

from sandbox_engine.api.services import Services
from sandbox_engine.catalog import Catalog
from sandbox_engine.engine import Engine
from sandbox_engine.errors import InvalidRequest, Unauthorized
from sandbox_engine.metrics.sampler import Sampler
from sandbox_engine.reserve import Reserve
from sandbox_engine.snapshots.forks import Forks
from sandbox_engine.snapshots.snapshots import Snapshots
from sandbox_engine.templates.builds import Builds
from sandbox_engine.templates.library import Library
from sandbox_engine.templates.links import UploadLinks
from sandbox_engine.templates.uploads import Uploads
from sandbox_engine.vault import Vault
from sandbox_engine.volumes.volumes import Volumes

_SANDBOX_ID = re.compile(r"[a-z0-9-]{1,100}")


def get_services(request: Request) -> Services:
    return cast("Services", request.app.state.services)


ServicesDep = Annotated[Services, Depends(get_services)]


def get_engine(services: ServicesDep) -> Engine:
    return services.engine


def get_sampler(services: ServicesDep) -> Sampler:
    return services.sampler


def get_reserve(services: ServicesDep) -> Reserve:
    return services.reserve


def get_snapshots(services: ServicesDep) -> Snapshots:
    return services.snapshots


def get_forks(services: ServicesDep) -> Forks:
    return services.forks


def get_domain(services: ServicesDep) -> str:
    return services.domain


def get_volumes(services: ServicesDep) -> Volumes:
    return services.volumes


def get_vault(services: ServicesDep) -> Vault:
    return services.vault


def get_catalog(services: ServicesDep) -> Catalog:
    return services.catalog


def get_library(services: ServicesDep) -> Library:
    return services.templates.library


def get_builds(services: ServicesDep) -> Builds:
    return services.templates.builds


def get_uploads(services: ServicesDep) -> Uploads:
    return services.templates.uploads


def get_upload_links(services: ServicesDep) -> UploadLinks:
    return services.templates.links


def get_disk_size(services: ServicesDep) -> int:
    return services.disk_mb


def check_api_key(
    services: ServicesDep,
    x_api_key: Annotated[str | None, Header(alias="X-API-Key")] = None,
    authorization: Annotated[str | None, Header()] = None,
) -> None:
    """Let nobody in without the engine's key; older command lines send it as an access token."""
    scheme, _, token = (authorization or "").partition(" ")
    key = x_api_key or (token if scheme.lower() == "bearer" else None)
    if key is None:
        raise Unauthorized("authorization header is missing")
    if not hmac.compare_digest(key.encode(), services.api_key.encode()):
        raise Unauthorized("Invalid API key: it is not the key of this engine")


def parse_sandbox_id(sandbox_id: Annotated[str, Path(alias="sandbox_id")]) -> str:
    """Read the sandbox's id; older clients append a client id."""
    if not _SANDBOX_ID.fullmatch(sandbox_id):
        raise InvalidRequest("Invalid sandbox ID")
    return sandbox_id.partition("-")[0]


EngineDep = Annotated[Engine, Depends(get_engine)]
SamplerDep = Annotated[Sampler, Depends(get_sampler)]
ReserveDep = Annotated[Reserve, Depends(get_reserve)]
SnapshotsDep = Annotated[Snapshots, Depends(get_snapshots)]
ForksDep = Annotated[Forks, Depends(get_forks)]
DomainDep = Annotated[str, Depends(get_domain)]
VolumesDep = Annotated[Volumes, Depends(get_volumes)]
VaultDep = Annotated[Vault, Depends(get_vault)]
CatalogDep = Annotated[Catalog, Depends(get_catalog)]
LibraryDep = Annotated[Library, Depends(get_library)]
BuildsDep = Annotated[Builds, Depends(get_builds)]
UploadsDep = Annotated[Uploads, Depends(get_uploads)]
UploadLinksDep = Annotated[UploadLinks, Depends(get_upload_links)]
DiskSize = Annotated[int, Depends(get_disk_size)]
SandboxId = Annotated[str, Depends(parse_sandbox_id)]
