from typing import Annotated

from fastapi import APIRouter, Body, Path, Query, Response

from sandbox_client.models import (
    Page,
    Resources,
    TemplateBuildLog,
    TemplateBuildRead,
    TemplateBuildState,
    TemplateCreate,
    TemplateRead,
    TemplateRebuild,
    TemplateStep,
)
from sandbox_server.db.models import TemplateBuild
from sandbox_server.domain import errors
from sandbox_server.domain.templates import Definition, Step, StepKind
from sandbox_server.http.declared_errors import LOOKED_UP, may_fail_with
from sandbox_server.http.deps import Operator, Reader, TemplateNamePath, depends_on
from sandbox_server.http.json_body import JsonRoute
from sandbox_server.http.pagination import DEFAULT_LIMIT, Cursor, Limit, page_of, read_id
from sandbox_server.http.requests import IdempotencyDep
from sandbox_server.templates.build_repository import log_of
from sandbox_server.templates.catalog import Catalog, CatalogEntry

router = APIRouter(route_class=JsonRoute, prefix="/v1/templates", tags=["templates"])

RebuildBody = Annotated[TemplateRebuild, Body(default_factory=TemplateRebuild)]
Offset = Annotated[
    int, Query(ge=0, le=2**53, description="Position in the log, in characters, at which to start.")
]

CatalogDep = Annotated[Catalog, depends_on(Catalog)]


@router.get("")
async def list_templates(
    caller: Reader, catalog: CatalogDep, cursor: Cursor = None, limit: Limit = DEFAULT_LIMIT
) -> Page[TemplateRead]:
    """List the tenant's own and shared templates, newest first. Backends may offer further public templates."""
    entries = await catalog.list_page(caller, limit=limit + 1, before=read_id(cursor))
    items = [_view(entry) for entry in entries]
    return page_of(entries, items, limit=limit, position=lambda entry: entry.template.id)


@router.post("", status_code=202)
@may_fail_with(
    *(errors.NameTaken, errors.TooManyTemplates, errors.InvalidRequest, errors.TemplateNotFound),
    *LOOKED_UP,
)
async def create_template(
    body: TemplateCreate,
    idempotency: IdempotencyDep,
    response: Response,
    caller: Operator,
    catalog: CatalogDep,
) -> TemplateRead:
    """Create a template and start its builds (202). It is usable on a backend once its build there is `ready`."""
    entry = await catalog.create(
        caller,
        body.name,
        _to_definition(body),
        backends=body.backends,
        force=body.force,
        idempotency=idempotency.of(body),
    )
    response.headers["Location"] = f"/v1/templates/{entry.template.name}"
    return _view(entry)


@router.get("/{name}")
async def get_template(name: TemplateNamePath, caller: Reader, catalog: CatalogDep) -> TemplateRead:
    """Get a template and the state of its builds."""
    return _view(await catalog.get(caller, name))


@router.delete("/{name}", status_code=204)
@may_fail_with(errors.InvalidRequest)
async def delete_template(name: TemplateNamePath, caller: Operator, catalog: CatalogDep) -> None:
    """Delete a template. Its files are removed once no sandbox uses them."""
    await catalog.delete(caller, name)


@router.post("/{name}/builds", status_code=202)
@may_fail_with(errors.InvalidRequest, *LOOKED_UP)
async def rebuild_template(
    name: TemplateNamePath,
    body: RebuildBody,
    idempotency: IdempotencyDep,
    response: Response,
    caller: Operator,
    catalog: CatalogDep,
) -> TemplateRead:
    """Rebuild a template (202), with the same or a new definition. The previous build stays in use until the new one is ready."""
    entry = await catalog.rebuild(
        caller,
        name,
        None if body.is_as_before else _to_definition(body),
        backends=body.backends,
        force=body.force,
        idempotency=idempotency.of(body),
    )
    response.headers["Location"] = f"/v1/templates/{name}/builds"
    return _view(entry)


@router.get("/{name}/builds")
async def list_template_builds(
    name: TemplateNamePath, caller: Reader, catalog: CatalogDep
) -> Page[TemplateBuildRead]:
    """List a template's latest build on each backend. All are returned in one page."""
    entry = await catalog.get(caller, name)
    return Page(items=[_view_build(build) for build in entry.builds], next_cursor=None)


@router.get("/{name}/builds/{backend}")
async def get_template_build(
    name: TemplateNamePath,
    backend: Annotated[str, Path()],
    caller: Reader,
    catalog: CatalogDep,
    offset: Offset = 0,
) -> TemplateBuildLog:
    """Get a build's state and its log from `offset`. Poll with `next_offset` for more."""
    build = await catalog.get_build(caller, name, backend)
    chunk = log_of(build).read(offset)
    return TemplateBuildLog(
        **dict(_view_build(build)),
        log=chunk.text,
        log_offset=chunk.offset,
        next_offset=chunk.next_offset,
    )


def _view(entry: CatalogEntry) -> TemplateRead:
    row = entry.template
    return TemplateRead(
        id=row.id,
        name=row.name,
        shared=row.tenant_id is None,
        capabilities=sorted(row.capabilities),
        created_at=row.created_at,
        builds=[_view_build(build) for build in entry.builds],
    )


def _view_build(build: TemplateBuild) -> TemplateBuildRead:
    return TemplateBuildRead(
        backend=build.backend,
        state=TemplateBuildState(build.state),
        state_reason=build.state_reason,
        resources=Resources(cpu_count=build.cpu_count, memory_mb=build.memory_mb),
        requested_at=build.requested_at,
        ready_at=build.ready_at,
    )


def _to_definition(body: TemplateCreate | TemplateRebuild) -> Definition:
    fields = body.model_dump(exclude={"name", "backends", "force", "steps"})
    return Definition(**fields, steps=[_to_step(step) for step in body.steps])


def _to_step(step: TemplateStep) -> Step:
    [(kind, argument)] = step.model_dump(exclude_none=True).items()
    return Step(StepKind(kind.upper()), argument)
