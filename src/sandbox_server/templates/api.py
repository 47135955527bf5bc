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
from sandbox_server.templates.catalog import Catalog, Entry

router = APIRouter(route_class=JsonRoute, prefix="/v1/templates", tags=["templates"])

RebuildBody = Annotated[TemplateRebuild, Body(default_factory=TemplateRebuild)]
Offset = Annotated[
    int, Query(ge=0, le=2**53, description="After how many characters of the log to begin.")
]

CatalogDep = Annotated[Catalog, depends_on(Catalog)]


@router.get("")
async def list_templates(
    caller: Reader, catalog: CatalogDep, cursor: Cursor = None, limit: Limit = DEFAULT_LIMIT
) -> Page[TemplateRead]:
    """List your own templates and everybody's, newest first. Backends may know more names than these."""
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
    """Have a template built. It can be used at a backend when its build there is ready."""
    entry = await catalog.create(
        caller,
        body.name,
        _a_definition(body),
        backends=body.backends,
        force=body.force,
        idempotency=idempotency.of(body),
    )
    response.headers["Location"] = f"/v1/templates/{entry.template.name}"
    return _view(entry)


@router.get("/{name}")
async def get_template(name: TemplateNamePath, caller: Reader, catalog: CatalogDep) -> TemplateRead:
    """Tell where a template is, and how its builds went."""
    return _view(await catalog.get(caller, name))


@router.delete("/{name}", status_code=204)
@may_fail_with(errors.InvalidRequest)
async def delete_template(name: TemplateNamePath, caller: Operator, catalog: CatalogDep) -> None:
    """Have nothing created from a template any more; its files go once no sandbox stands on them."""
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
    """Build a template again, as before or from something else. What is ready stays in use until the build is."""
    entry = await catalog.rebuild(
        caller,
        name,
        None if body.is_as_before else _a_definition(body),
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
    """List a template's last build at each backend; there are few, so all are in one part."""
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
    """Tell how a build goes, and what it said so far."""
    build = await catalog.get_build(caller, name, backend)
    piece = log_of(build).read(offset)
    return TemplateBuildLog(
        **dict(_view_build(build)),
        log=piece.text,
        log_offset=piece.offset,
        next_offset=piece.next_offset,
    )


def _view(entry: Entry) -> TemplateRead:
    row = entry.template
    return TemplateRead(
        id=row.id,
        name=row.name,
        shared=row.tenant_id is None,
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


def _a_definition(body: TemplateCreate | TemplateRebuild) -> Definition:
    plain = body.model_dump(exclude={"name", "backends", "force", "steps"})
    return Definition(**plain, steps=[_a_step(step) for step in body.steps])


def _a_step(step: TemplateStep) -> Step:
    [(kind, argument)] = step.model_dump(exclude_none=True).items()
    return Step(StepKind(kind.upper()), argument)
