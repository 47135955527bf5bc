from importlib.metadata import version
from typing import Annotated

from fastapi import APIRouter, Request, Response

from sandbox_client.models import BackendReadiness, Health, Readiness, Version
from sandbox_server.access.metrics_access import METRICS_PATH
from sandbox_server.admin.metrics_exporter import MetricsExporter
from sandbox_server.admin.overview import Overview
from sandbox_server.http.deps import depends_on

router = APIRouter(tags=["health"])

_VERSION = Version(version=version("sandbox-server"))

OverviewDep = Annotated[Overview, depends_on(Overview)]


@router.get("/healthz")
async def get_health() -> Health:
    """Check liveness: 200 while the process runs, regardless of its dependencies."""
    return Health()


@router.get("/readyz", responses={503: {"model": Readiness}})
async def get_readiness(overview: OverviewDep, response: Response) -> Readiness:
    """Check readiness: 200 if requests can be served, else 503. Backends that are down do not affect it: requests for them are queued."""
    readiness = await overview.check_readiness()
    if readiness.reasons:
        response.status_code = 503
    return Readiness(
        status="not-ready" if readiness.reasons else "ready",
        reasons=list(readiness.reasons),
        backends=[
            BackendReadiness(name=backend.name, state=backend.state, drained=backend.drained)
            for backend in readiness.backends
        ],
    )


@router.get("/version")
async def get_version() -> Version:
    """Get the server's version."""
    return _VERSION


MetricsExporterDep = Annotated[MetricsExporter, depends_on(MetricsExporter)]


@router.get(METRICS_PATH, include_in_schema=False)
async def get_metrics(request: Request, metrics_exporter: MetricsExporterDep) -> Response:
    content, media_type = await metrics_exporter.render(request.headers.get("accept", ""))
    return Response(content, media_type=media_type)
