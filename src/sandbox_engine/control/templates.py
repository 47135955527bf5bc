from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Depends, Query, Response

from sandbox_engine.control.deps import (
    BuildsDep,
    DiskSize,
    LibraryDep,
    SnapshotsDep,
    check_api_key,
)
from sandbox_engine.control.models.templates import (
    AssignedTags,
    AssignTagsBody,
    RemoveTagsBody,
    Tag,
    Template,
    TemplateAlias,
    TemplateNames,
    TemplateWithBuilds,
    UpdateBody,
)
from sandbox_engine.control.pagination import page
from sandbox_engine.templates.records import BuildRecord, TemplateRecord

router = APIRouter(tags=["templates"], dependencies=[Depends(check_api_key)])

PageSize = Annotated[int, Query(ge=1, le=100)]
NextToken = Annotated[str | None, Query(alias="nextToken")]


@router.get("/templates")
async def list_all_templates(library: LibraryDep, disk_mb: DiskSize) -> list[Template]:
    """List all templates, oldest first."""
    return [Template.of(template, disk_mb=disk_mb) for template in library.list_all()]


@router.get("/v2/templates")
async def list_templates(
    response: Response,
    library: LibraryDep,
    disk_mb: DiskSize,
    limit: PageSize = 100,
    next_token: NextToken = None,
) -> list[Template]:
    """List templates, oldest first, page by page."""
    shown, following = page(
        library.list_all(), at=_created_at, limit=limit, token=next_token, ascending=True
    )
    _set_next_token(response, following)
    return [Template.of(template, disk_mb=disk_mb) for template in shown]


@router.get("/templates/aliases/{alias}")
async def find_template_by_alias(alias: str, library: LibraryDep) -> TemplateAlias:
    """Check whether a template with this name, and optionally this tag, exists."""
    template = library.resolve(alias)
    return TemplateAlias(template_id=template.id, public=template.public)


@router.post("/templates/tags", status_code=201)
async def assign_tags(body: AssignTagsBody, library: LibraryDep) -> AssignedTags:
    """Add tags to the build that `name:tag` refers to."""
    build, tags = await library.assign_tags(body.target, body.tags)
    return AssignedTags(tags=tags, build_id=build.id)


@router.delete("/templates/tags", status_code=204)
async def remove_tags(body: RemoveTagsBody, library: LibraryDep) -> None:
    """Remove tags from a template."""
    await library.remove_tags(body.name, body.tags)


@router.get("/templates/{template_id}/tags")
async def list_tags(template_id: str, library: LibraryDep) -> list[Tag]:
    """List a template's tags with their builds."""
    return [
        Tag(tag=tag, build_id=led_to.build_id, created_at=led_to.created_at)
        for tag, led_to in library.resolve(template_id).tags.items()
    ]


@router.get("/templates/{template_id}")
async def get_template(
    template_id: str,
    response: Response,
    library: LibraryDep,
    disk_mb: DiskSize,
    limit: PageSize = 100,
    next_token: NextToken = None,
) -> TemplateWithBuilds:
    """Get a template with a page of its builds, newest first."""
    template = library.resolve(template_id)
    shown, following = page(template.builds, at=_created_at, limit=limit, token=next_token)
    _set_next_token(response, following)
    return TemplateWithBuilds.of(template, shown, disk_mb=disk_mb)


@router.delete("/templates/{template_id}", status_code=204)
async def delete_template(
    template_id: str, library: LibraryDep, builds: BuildsDep, snapshots: SnapshotsDep
) -> None:
    """Delete a template with its builds, or a snapshot; its sandboxes keep running."""
    if not await snapshots.delete(template_id):
        library.resolve(template_id)
        await builds.delete(template_id)


@router.patch("/templates/{template_id}")
async def update_template(
    template_id: str, body: UpdateBody, library: LibraryDep
) -> dict[str, str]:
    """Change whether the template is public (older clients)."""
    await _update(template_id, body, library)
    return {}


@router.patch("/v2/templates/{template_id}")
async def update_template_v2(
    template_id: str, body: UpdateBody, library: LibraryDep
) -> TemplateNames:
    """Change whether the template is public."""
    return TemplateNames(names=(await _update(template_id, body, library)).names)


async def _update(template_id: str, body: UpdateBody, library: LibraryDep) -> TemplateRecord:
    if body.public is None:
        return library.resolve(template_id)
    return await library.publish(template_id, public=body.public)


def _set_next_token(response: Response, token: str | None) -> None:
    if token is not None:
        response.headers["X-Next-Token"] = token


def _created_at(record: TemplateRecord | BuildRecord) -> datetime:
    return record.created_at
