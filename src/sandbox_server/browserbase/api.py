from typing import Annotated, Any

from fastapi import APIRouter

from sandbox_server.browserbase.projects import Projects
from sandbox_server.browserbase.views import view_project
from sandbox_server.domain.errors import BrowserbasePathNotFound, FeatureUnavailable
from sandbox_server.http.deps import Reader, depends_on
from sandbox_server.http.json_body import JsonRoute

router = APIRouter(route_class=JsonRoute, prefix="/browserbase/v1", include_in_schema=False)

ProjectsDep = Annotated[Projects, depends_on(Projects)]

_METHODS = ["GET", "POST", "PUT", "DELETE"]
# Resources of Browserbase's API that this server does not have, and what to use instead.
_UNAVAILABLE = {
    "agents": "Run coding agents with POST /v1/sandboxes/{id}/agent-runs.",
    "certificates": "Set browserSettings.ignoreCertificateErrors, or add certificates to the template.",
    "fetch": "Fetch with a browser session.",
    "functions": "Run programs in sandboxes.",
    "search": "Search with a browser session.",
    "secrets": "Pass secrets as `envs` of sandboxes.",
    "webhooks": "Follow GET /v1/events.",
}


@router.get("/projects")
async def list_projects(caller: Reader, projects: ProjectsDep) -> list[dict[str, Any]]:
    """List the caller's one project."""
    return [view_project(await projects.get(caller))]


@router.get("/projects/{project_id}")
async def get_project(project_id: str, caller: Reader, projects: ProjectsDep) -> dict[str, Any]:
    """Get the caller's project."""
    return view_project(await projects.get(caller, project_id))


@router.get("/projects/{project_id}/usage")
async def get_project_usage(
    project_id: str, caller: Reader, projects: ProjectsDep
) -> dict[str, int]:
    """Sum up the project's sessions."""
    usage = await projects.usage(caller, project_id)
    return {"browserMinutes": usage.browser_minutes, "proxyBytes": usage.proxy_bytes}


@router.api_route("/{resource}", methods=_METHODS)
@router.api_route("/{resource}/{rest:path}", methods=_METHODS)
async def refuse_resource(resource: str, _caller: Reader) -> None:
    """Refuse what Browserbase has and this server does not."""
    instead = _UNAVAILABLE.get(resource)
    if instead is None:
        raise BrowserbasePathNotFound(resource)
    raise FeatureUnavailable(f"This server has no {resource} of Browserbase's API. {instead}")
