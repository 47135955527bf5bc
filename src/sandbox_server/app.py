from functools import cache
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.middleware.cors import CORSMiddleware
from starlette.routing import BaseRoute, Route

from sandbox_server.access import api_keys_api as keys
from sandbox_server.access import api_logins as logins
from sandbox_server.access import api_tenants as tenants
from sandbox_server.access import api_tickets as tickets
from sandbox_server.access.authentication import Authentication
from sandbox_server.access.configuration import api as configuration
from sandbox_server.access.metrics_access import MetricsAccess
from sandbox_server.admin import api_backends as backends
from sandbox_server.admin import api_health as health
from sandbox_server.admin import api_jobs as jobs
from sandbox_server.admin import api_stats as stats
from sandbox_server.agents import api as agent_runs
from sandbox_server.agents import api_socket as agent_socket
from sandbox_server.browserbase import api as browserbase
from sandbox_server.browserbase import api_contents as browserbase_contents
from sandbox_server.browserbase import api_session_files as browserbase_session_files
from sandbox_server.browserbase import api_sessions as browserbase_sessions
from sandbox_server.browserbase.connect import CONNECT_ROUTE, ConnectRoute
from sandbox_server.browserbase.errors import BrowserbaseErrors
from sandbox_server.browsers import api as browsers
from sandbox_server.browsers import api_links as browser_links
from sandbox_server.browsers import api_records as browser_records
from sandbox_server.browsers import api_videos as browser_videos
from sandbox_server.browsers.api_links import ROUTE_PATH as BROWSER_PATH
from sandbox_server.browsers.api_links import BrowserRoute
from sandbox_server.commands import api as commands
from sandbox_server.components import Components
from sandbox_server.desktops import api as desktops
from sandbox_server.desktops import api_recordings as desktop_recordings
from sandbox_server.desktops import api_viewer as desktop_viewer
from sandbox_server.domain.errors import TooManyAtOnce, TooManyStreams
from sandbox_server.events import api as events
from sandbox_server.events import api_logs as logs
from sandbox_server.files import api as files
from sandbox_server.forges import api as forges
from sandbox_server.forges import api_webhooks as webhooks
from sandbox_server.git.endpoint.app import GIT_PATH, GitRoute
from sandbox_server.http import docs, problems
from sandbox_server.http.access_log import AccessLog
from sandbox_server.http.middleware import (
    REQUEST_ID,
    BodyLimit,
    RequestChecks,
    RequestIds,
    UnexpectedErrors,
)
from sandbox_server.http.request_metrics import RequestMetrics
from sandbox_server.http.tenant_limits import ConcurrencyLimit, TenantLimits
from sandbox_server.interpreters import api as code
from sandbox_server.interpreters import api_contexts as code_contexts
from sandbox_server.openapi import DescribedApi
from sandbox_server.ports import api as ports
from sandbox_server.ports.path_proxy import PROXY_PATH, PathProxy
from sandbox_server.ports.sandbox_hosts import SandboxHosts
from sandbox_server.repositories import api as repositories
from sandbox_server.sandboxes import api as sandboxes
from sandbox_server.snapshots import api as snapshots
from sandbox_server.snapshots import api_forks as forks
from sandbox_server.tasks import api as tasks
from sandbox_server.tasks import api_history as task_history
from sandbox_server.tasks.overlaps import api as task_overlaps
from sandbox_server.templates import api as templates
from sandbox_server.templates import api_capabilities as capabilities
from sandbox_server.terminals import api as terminals
from sandbox_server.tools import api as mcp
from sandbox_server.verbs import api as verbs
from sandbox_server.web import api as page
from sandbox_server.web import interface

# In the order of the OpenAPI document.
_ROUTES = (
    *(agent_socket,),
    *(
        sandboxes,
        forks,
        ports,
        browser_links,
        commands,
        code,
        code_contexts,
        agent_runs,
        terminals,
        desktops,
        desktop_recordings,
        desktop_viewer,
        snapshots,
        browsers,
        browser_records,
        browser_videos,
        templates,
        capabilities,
        configuration,
        files,
        events,
        logs,
        task_overlaps,  # before /v1/tasks/{task_id}
        tasks,
        task_history,
        forges,
        repositories,
        webhooks,
    ),
    *(browserbase_contents, browserbase_session_files, browserbase_sessions, browserbase),
    *(tenants, keys, tickets, logins, backends, stats, jobs, health, page, interface, docs, verbs),
)

_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
# Response headers that pages of allowed origins can read in addition to the CORS defaults.
_EXPOSED_HEADERS = (
    *("Location", "Content-Location", "Retry-After", "WWW-Authenticate"),
    *(REQUEST_ID, "Mcp-Session-Id"),
    *("Accept-Ranges", "Content-Disposition", "Content-Range", "ETag"),
)


def create_app(components: Components) -> FastAPI:
    """Build the API over the components."""
    app = _described()
    app.state.components = components.by_type()
    problems.install(app)
    _add_middleware(app, components)
    return app


def describe() -> dict[str, Any]:
    """Generate the OpenAPI document of this version."""
    return _described().openapi()


def _described() -> DescribedApi:
    app = DescribedApi(
        title="sandbox-server",
        version=version("sandbox-server"),
        openapi_url=None,  # served by http/docs.py, which serializes it once
        redirect_slashes=False,
    )
    app.router.routes.extend(_routes())
    return app


@cache
def _routes() -> tuple[BaseRoute, ...]:
    """Return the modules' routes in one flat list.

    `include_router` would wrap each module's routes, check every wrapper for every request, and copy the routes for every app.
    """
    path_proxy = Route(PROXY_PATH, PathProxy(), include_in_schema=False)
    connect = Route(CONNECT_ROUTE, ConnectRoute(), include_in_schema=False)
    git = Route(GIT_PATH, GitRoute(), include_in_schema=False)
    browser = Route(BROWSER_PATH, BrowserRoute(), include_in_schema=False)
    listed = (route for module in _ROUTES for route in module.router.routes)
    routes = (*listed, path_proxy, connect, git, browser, *mcp.router.routes)
    for route in routes:
        if isinstance(route, APIRoute):
            route.unique_id = route.name
    return routes


def _add_middleware(app: FastAPI, components: Components) -> None:
    settings = components.settings
    requests = ConcurrencyLimit(settings.max_requests_per_tenant, TooManyAtOnce)
    streams = ConcurrencyLimit(settings.max_streams_per_tenant, TooManyStreams)
    # The last one added is the outermost.
    app.add_middleware(TenantLimits, requests=requests, streams=streams)
    app.add_middleware(
        Authentication,
        authenticator=components.authenticator,
        path_tokens=components.browser_tokens,
        metrics=MetricsAccess(settings.metrics_token),
        public_address=components.public_address,
    )
    app.add_middleware(BodyLimit, limit=settings.max_body_mb * 2**20)
    app.add_middleware(RequestChecks)
    app.add_middleware(UnexpectedErrors)
    app.add_middleware(BrowserbaseErrors)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=_METHODS,
            allow_headers=[
                "*"
            ],  # credentials that browsers add by themselves are not accepted from other origins
            expose_headers=_EXPOSED_HEADERS,
        )
    app.add_middleware(RequestMetrics)
    app.add_middleware(AccessLog)
    app.add_middleware(RequestIds)
    app.add_middleware(
        SandboxHosts,
        public_address=components.public_address,
        authenticator=components.authenticator,
        port_proxy=components.port_proxy,
        browsers=components.browser_hosts,
        requests=requests,
        streams=streams,
    )
