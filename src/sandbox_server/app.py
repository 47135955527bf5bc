from functools import cache
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route

from sandbox_server.api import (
    agent_runs,
    agent_socket,
    backends,
    commands,
    docs,
    events,
    files,
    health,
    jobs,
    keys,
    logins,
    logs,
    mcp,
    metrics,
    page,
    ports,
    problems,
    sandboxes,
    sessions,
    snapshots,
    stats,
    templates,
    tenants,
    terminals,
    tickets,
    verbs,
)
from sandbox_server.api.access_log import AccessLog
from sandbox_server.api.authentication import Authentication
from sandbox_server.api.exchange import REQUEST_ID, BodyLimit, Failures, RequestIds, Sanity
from sandbox_server.api.fair_load import FairLoad
from sandbox_server.api.metrics_access import MetricsAccess
from sandbox_server.api.openapi import DescribedApi
from sandbox_server.api.path_form import PATH_FORM, PathForm
from sandbox_server.api.request_metrics import RequestMetrics
from sandbox_server.api.sandbox_hosts import SandboxHosts
from sandbox_server.api.tenant_shares import TenantShares
from sandbox_server.domain.errors import TooManyAtOnce, TooManyStreams
from sandbox_server.services import Services

# As the description lists them.
_ROUTES = (
    *(agent_socket,),
    *(
        sandboxes,
        ports,
        sessions,
        commands,
        agent_runs,
        terminals,
        snapshots,
        templates,
        files,
        events,
        logs,
    ),
    *(tenants, keys, tickets, logins, backends, stats, jobs, health, metrics, page, docs, verbs),
)

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
# What a page may read of an answer beside what all pages may.
_TOLD_HEADERS = (
    *("Location", "Content-Location", "Retry-After", "WWW-Authenticate"),
    *(REQUEST_ID, "Mcp-Session-Id"),
    *("Accept-Ranges", "Content-Disposition", "Content-Range", "ETag"),
)


def create_app(services: Services) -> FastAPI:
    """Build the API over what `services` can do."""
    app = _described()
    app.state.services = services
    problems.install(app)
    _surround(app, services)
    return app


def describe() -> dict[str, Any]:
    """Describe the API of this version, as OpenAPI has it."""
    return _described().openapi()


def _described() -> DescribedApi:
    app = DescribedApi(
        title="sandbox-server",
        version=version("sandbox-server"),
        openapi_url=None,  # ours is written once
        redirect_slashes=False,
    )
    app.router.routes.extend(_routes())
    return app


@cache
def _routes() -> tuple[BaseRoute, ...]:
    """Give the routes as their modules made them.

    `include_router` would wrap each module's, look at every wrapper for every request, and make them anew for every app.
    """
    path_form = Route(PATH_FORM, PathForm(), include_in_schema=False)
    listed = (route for module in _ROUTES for route in module.router.routes)
    routes = (*listed, path_form, *mcp.router.routes)
    for route in routes:
        if isinstance(route, APIRoute):
            route.unique_id = route.name
    return routes


def _surround(app: FastAPI, services: Services) -> None:
    settings = services.settings
    requests = TenantShares(settings.max_requests_per_tenant, TooManyAtOnce)
    streams = TenantShares(settings.max_streams_per_tenant, TooManyStreams)
    # The last one added is the outermost.
    app.add_middleware(FairLoad, requests=requests, streams=streams)
    app.add_middleware(
        Authentication,
        authenticator=services.authenticator,
        metrics=MetricsAccess(settings.metrics_token),
        public_address=services.public_address,
    )
    app.add_middleware(BodyLimit, limit=settings.max_body_mb * 2**20)
    app.add_middleware(Sanity)
    app.add_middleware(Failures)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=_METHODS,
            allow_headers=["*"],  # nothing that a browser adds by itself counts for pages of others
            expose_headers=_TOLD_HEADERS,
        )
    app.add_middleware(RequestMetrics)
    app.add_middleware(AccessLog)
    app.add_middleware(RequestIds)
    app.add_middleware(SandboxHosts, services=services, requests=requests, streams=streams)
