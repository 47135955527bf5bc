import hmac
import re
from operator import attrgetter
from typing import Annotated, Any, cast

from fastapi import Depends, Header, Path, Request

from sandbox_engine.control.services import Services
from sandbox_engine.metrics.sampler import Sampler
from sandbox_engine.records.catalog import Catalog
from sandbox_engine.sandboxes.service import SandboxService
from sandbox_engine.sandboxes.warm_pool import WarmPool
from sandbox_engine.snapshots.forks import Forks
from sandbox_engine.snapshots.snapshots import Snapshots
from sandbox_engine.system.errors import InvalidRequest, Unauthorized
from sandbox_engine.templates.builds import Builds
from sandbox_engine.templates.library import Library
from sandbox_engine.templates.upload_links import UploadLinks
from sandbox_engine.templates.uploads import Uploads
from sandbox_engine.volumes.volumes import Volumes

_SANDBOX_ID = re.compile(r"[a-z0-9-]{1,100}")


async def get_services(request: Request) -> Services:
    return cast("Services", request.app.state.services)


ServicesDep = Annotated[Services, Depends(get_services)]


async def check_api_key(
    services: ServicesDep,
    x_api_key: Annotated[str | None, Header(alias="X-API-Key")] = None,
    authorization: Annotated[str | None, Header()] = None,
) -> None:
    """Require the engine's API key; older command lines send it as an access token."""
    scheme, _, token = (authorization or "").partition(" ")
    key = x_api_key or (token if scheme.lower() == "bearer" else None)
    if key is None:
        raise Unauthorized("authorization header is missing")
    if not hmac.compare_digest(key.encode(), services.api_key.encode()):
        raise Unauthorized("Invalid API key for this engine")


async def parse_sandbox_id(sandbox_id: Annotated[str, Path(alias="sandbox_id")]) -> str:
    """Parse the sandbox ID; older clients append a client ID."""
    if not _SANDBOX_ID.fullmatch(sandbox_id):
        raise InvalidRequest("Invalid sandbox ID")
    return sandbox_id.partition("-")[0]


def _of_services(path: str) -> Any:
    """Make a dependency that returns one of the services."""
    find = attrgetter(path)

    async def get(services: ServicesDep) -> Any:
        return find(services)

    return Depends(get)


SandboxServiceDep = Annotated[SandboxService, _of_services("sandboxes")]
SamplerDep = Annotated[Sampler, _of_services("sampler")]
WarmPoolDep = Annotated[WarmPool, _of_services("warm_pool")]
SnapshotsDep = Annotated[Snapshots, _of_services("snapshots")]
ForksDep = Annotated[Forks, _of_services("forks")]
DomainDep = Annotated[str, _of_services("domain")]
VolumesDep = Annotated[Volumes, _of_services("volumes")]
CatalogDep = Annotated[Catalog, _of_services("catalog")]
LibraryDep = Annotated[Library, _of_services("templates.library")]
BuildsDep = Annotated[Builds, _of_services("templates.builds")]
UploadsDep = Annotated[Uploads, _of_services("templates.uploads")]
UploadLinksDep = Annotated[UploadLinks, _of_services("templates.links")]
DiskSize = Annotated[int, _of_services("disk_mb")]
SandboxId = Annotated[str, Depends(parse_sandbox_id)]
