from importlib.metadata import version
from typing import Annotated

from fastapi import APIRouter, Response

from sandbox_client.models import BackendReadiness, Health, Readiness, Version
from sandbox_server.admin.overview import Overview
from sandbox_server.http.deps import depends_on

router = APIRouter(tags=["health"])

_VERSION = Version(version=version("sandbox-server"))

OverviewDep = Annotated[Overview, depends_on(Overview)]


@router.get("/healthz")
async def get_health() -> Health:
    """Tell that the process is alive, whatever it depends on."""
    return Health()


@router.get("/readyz", responses={503: {"model": Readiness}})
async def get_readiness(overview: OverviewDep, response: Response) -> Readiness:
    """Tell whether requests can be served. With a backend down they can: what needs it waits in the queue."""
    condition = await overview.check_condition()
    if condition.obstacles:
        response.status_code = 503
    return Readiness(
        status="not-ready" if condition.obstacles else "ready",
        reasons=list(condition.obstacles),
        backends=[
            BackendReadiness(name=one.name, state=one.state, drained=one.drained)
            for one in condition.backends
        ],
    )


@router.get("/version")
async def get_version() -> Version:
    """Tell which server this is."""
    return _VERSION
