from collections.abc import Sequence
from enum import StrEnum
from typing import Annotated

from fastapi import APIRouter, Depends, Query

from sandbox_engine.control.deps import (
    BuildsDep,
    CatalogDep,
    DiskSize,
    LibraryDep,
    check_api_key,
)
from sandbox_engine.control.models.builds import (
    BuildLogLine,
    BuildLogs,
    BuildStatusBody,
    StartBuildBody,
)
from sandbox_engine.control.models.templates import NewBuild, NewBuildBody, Template
from sandbox_engine.system.errors import InvalidRequest
from sandbox_engine.templates.building.log import BuildLogEntry, Level
from sandbox_engine.templates.library import Library
from sandbox_engine.templates.records import BuildRecord, TemplateRecord

router = APIRouter(tags=["builds"], dependencies=[Depends(check_api_key)])

_BUILD = "/templates/{template_id}/builds/{build_id}"

LogLimit = Annotated[int, Query(ge=0, le=100)]


class Direction(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"


@router.post("/v3/templates", status_code=202)
async def request_build(body: NewBuildBody, library: LibraryDep) -> NewBuild:
    """Request a build of a template; creates the template if the name is new."""
    return NewBuild.of(*await _request(body, library))


@router.post("/v2/templates", status_code=202)
async def request_build_v2(body: NewBuildBody, library: LibraryDep, disk_mb: DiskSize) -> Template:
    """Request a build of a template (older clients)."""
    template, build = await _request(body, library)
    return Template.of(template, disk_mb=disk_mb).model_copy(update={"build_id": build.id})


@router.post(f"/v2{_BUILD}", status_code=202)
async def start_build(
    template_id: str,
    build_id: str,
    body: StartBuildBody,
    library: LibraryDep,
    builds: BuildsDep,
    catalog: CatalogDep,
) -> None:
    """Start a requested build after its files were uploaded."""
    template, build = library.get_build(template_id, build_id)
    await builds.start(template, build, body.to_plan(build, catalog))


@router.get(f"{_BUILD}/status", response_model_exclude_none=True)
async def get_build_status(
    template_id: str,
    build_id: str,
    library: LibraryDep,
    builds: BuildsDep,
    offset: Annotated[int, Query(alias="logsOffset", ge=0)] = 0,
    limit: LogLimit = 100,
    level: Level = Level.DEBUG,
) -> BuildStatusBody:
    """Get the state of a build, with its log from entry `logsOffset` on."""
    template, build = library.get_build(template_id, build_id)
    log = builds.read_log(template, build)
    shown = _lines(log.read(offset=offset, limit=limit, level=level))
    return BuildStatusBody.of(template, build, log, shown=shown)


@router.get(f"/v2{_BUILD}/logs", response_model_exclude_none=True)
@router.get(f"{_BUILD}/logs", response_model_exclude_none=True)
async def get_build_logs(
    template_id: str,
    build_id: str,
    library: LibraryDep,
    builds: BuildsDep,
    cursor: Annotated[int | None, Query(ge=0)] = None,
    limit: LogLimit = 100,
    direction: Direction = Direction.FORWARD,
    level: Level = Level.DEBUG,
) -> BuildLogs:
    """Get the log of a build, forwards or backwards from `cursor` (milliseconds)."""
    template, build = library.get_build(template_id, build_id)
    entries = builds.read_log(template, build).read(level=level)
    if direction is Direction.BACKWARD:
        entries = [entry for entry in entries[::-1] if cursor is None or _ms(entry) <= cursor]
    else:
        entries = [entry for entry in entries if cursor is None or _ms(entry) >= cursor]
    return BuildLogs(logs=_lines(entries[:limit]))


async def _request(body: NewBuildBody, library: Library) -> tuple[TemplateRecord, BuildRecord]:
    name = body.name or body.alias
    if name is None:
        raise InvalidRequest("Name is required")
    return await library.request_build(
        name, tags=body.tags, cpu_count=body.cpu_count, memory_mb=body.memory_mb
    )


def _lines(entries: Sequence[BuildLogEntry]) -> list[BuildLogLine]:
    return [BuildLogLine.of(entry) for entry in entries]


def _ms(entry: BuildLogEntry) -> int:
    return int(entry.timestamp.timestamp() * 1000)
