"""E2B's wire models of templates and their builds."""

from collections.abc import Iterable
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import Field, StrictBool, StrictInt

from sandbox_engine.control.models.sandboxes import ENVD_VERSION
from sandbox_engine.control.models.wire import WireModel
from sandbox_engine.templates.records import BuildRecord, BuildStatus, TemplateRecord

Name = Annotated[str, Field(min_length=1, max_length=256)]


class NewBuildBody(WireModel):
    """Request for a build of a template (v3)."""

    name: Name | None = None
    alias: Name | None = None
    tags: list[str] = Field(default_factory=list, max_length=100)
    cpu_count: StrictInt | None = None
    memory_mb: StrictInt | None = Field(None, alias="memoryMB")


class NewBuild(WireModel):
    """A build that waits for its files and steps."""

    template_id: str = Field(alias="templateID")
    build_id: str = Field(alias="buildID")
    public: bool
    names: list[str]
    aliases: list[str]
    tags: list[str]

    @classmethod
    def of(cls, template: TemplateRecord, build: BuildRecord) -> Self:
        return cls(
            template_id=template.id,
            build_id=build.id,
            public=template.public,
            names=template.names,
            aliases=template.names,
            tags=build.tags,
        )


class _Described(WireModel):
    """Fields of a template in every response."""

    template_id: str = Field(alias="templateID")
    public: bool
    names: list[str]
    aliases: list[str]
    created_at: datetime
    updated_at: datetime
    last_spawned_at: datetime | None
    spawn_count: int

    @classmethod
    def fields_of(cls, template: TemplateRecord) -> dict[str, Any]:
        return {
            "template_id": template.id,
            "public": template.public,
            "names": template.names,
            "aliases": template.names,
            "created_at": template.created_at,
            "updated_at": template.updated_at,
            "last_spawned_at": template.last_spawned_at,
            "spawn_count": template.spawn_count,
        }


class Template(_Described):
    """A template in a list."""

    build_id: str = Field(alias="buildID")
    build_status: BuildStatus
    cpu_count: int
    memory_mb: int = Field(alias="memoryMB")
    disk_size_mb: int = Field(alias="diskSizeMB")
    created_by: None = None
    build_count: int
    envd_version: str = ENVD_VERSION

    @classmethod
    def of(cls, template: TemplateRecord, *, disk_mb: int) -> Self:
        shown = template.shown_build
        return cls(
            **cls.fields_of(template),
            build_id=shown.id,
            build_status=template.builds[-1].status,
            cpu_count=shown.cpu_count,
            memory_mb=shown.memory_mb,
            disk_size_mb=disk_mb,
            build_count=template.build_count,
        )


class Build(WireModel):
    """A build of a template."""

    build_id: str = Field(alias="buildID")
    status: BuildStatus
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    cpu_count: int
    memory_mb: int = Field(alias="memoryMB")
    disk_size_mb: int = Field(alias="diskSizeMB")
    envd_version: str = ENVD_VERSION

    @classmethod
    def of(cls, build: BuildRecord, *, disk_mb: int) -> Self:
        return cls(
            build_id=build.id,
            status=build.status,
            created_at=build.created_at,
            updated_at=build.updated_at,
            finished_at=build.finished_at,
            cpu_count=build.cpu_count,
            memory_mb=build.memory_mb,
            disk_size_mb=disk_mb,
        )


class TemplateWithBuilds(_Described):
    """A template with a page of its builds, newest first."""

    builds: list[Build]

    @classmethod
    def of(cls, template: TemplateRecord, builds: Iterable[BuildRecord], *, disk_mb: int) -> Self:
        shown = [Build.of(build, disk_mb=disk_mb) for build in builds]
        return cls(**cls.fields_of(template), builds=shown)


class TemplateAlias(WireModel):
    template_id: str = Field(alias="templateID")
    public: bool


class UpdateBody(WireModel):
    public: StrictBool | None = None


class TemplateNames(WireModel):
    names: list[str]


class FileUpload(WireModel):
    """Whether the files are uploaded, and the upload URL."""

    present: bool
    url: str


class AssignTagsBody(WireModel):
    target: Name
    tags: list[str] = Field(max_length=100)


class RemoveTagsBody(WireModel):
    name: Name
    tags: list[str] = Field(max_length=100)


class AssignedTags(WireModel):
    tags: list[str]
    build_id: str = Field(alias="buildID")


class Tag(WireModel):
    tag: str
    build_id: str = Field(alias="buildID")
    created_at: datetime
