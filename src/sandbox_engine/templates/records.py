from datetime import UTC, datetime
from enum import StrEnum
from uuid import uuid4

from pydantic import BaseModel, Field

from sandbox_engine.images.image import Image
from sandbox_engine.records.template_names import DEFAULT_TAG
from sandbox_engine.system.errors import TagNotFound

_KEPT_BUILDS = 100


class BuildStatus(StrEnum):
    """State of a build; only `ready` ones can be used."""

    WAITING = "waiting"
    BUILDING = "building"
    READY = "ready"
    ERROR = "error"


class Failure(BaseModel):
    """Reason of a failed build and the step that failed."""

    message: str
    step: str | None = None


def _now() -> datetime:
    return datetime.now(UTC)


def _new_build_id() -> str:
    return str(uuid4())


class BuildRecord(BaseModel):
    """One build of a template; `image` is dropped when no tag refers to it."""

    id: str = Field(default_factory=_new_build_id)
    status: BuildStatus = BuildStatus.WAITING
    tags: list[str]
    cpu_count: int
    memory_mb: int
    created_at: datetime = Field(default_factory=_now)
    updated_at: datetime = Field(default_factory=_now)
    finished_at: datetime | None = None
    start_command: str = ""
    ready_command: str = ""
    image: Image | None = None
    failure: Failure | None = None

    @property
    def is_under_way(self) -> bool:
        return self.status in (BuildStatus.WAITING, BuildStatus.BUILDING)

    def begin(self) -> None:
        self.status, self.updated_at = BuildStatus.BUILDING, _now()

    def succeed(self, image: Image) -> None:
        self.image = image
        self._finish(BuildStatus.READY)

    def fail(self, failure: Failure) -> None:
        self.failure = failure
        self._finish(BuildStatus.ERROR)

    def _finish(self, status: BuildStatus) -> None:
        self.status, self.updated_at = status, _now()
        self.finished_at = self.updated_at


class TagRecord(BaseModel):
    """A tag of a template's build."""

    build_id: str
    created_at: datetime = Field(default_factory=_now)


class TemplateRecord(BaseModel):
    """State of a template; builds are in the order of requests."""

    id: str
    names: list[str]
    public: bool = False
    created_at: datetime = Field(default_factory=_now)
    updated_at: datetime = Field(default_factory=_now)
    last_spawned_at: datetime | None = None
    spawn_count: int = 0
    build_count: int = 0
    tags: dict[str, TagRecord] = Field(default_factory=dict)
    builds: list[BuildRecord] = Field(default_factory=list)

    @property
    def name(self) -> str:
        return self.names[0] if self.names else self.id

    @property
    def shown_build(self) -> BuildRecord:
        """The build that the template's name refers to, otherwise the newest."""
        led_to = self.tags.get(DEFAULT_TAG)
        return (led_to and self.find_build(led_to.build_id)) or self.builds[-1]

    def find_build(self, build_id: str) -> BuildRecord | None:
        return next((build for build in self.builds if build.id == build_id), None)

    def ready_build(self, tag: str | None) -> BuildRecord:
        """Return the build with a tag or build ID."""
        tag = tag or DEFAULT_TAG
        led_to = self.tags.get(tag)
        build = self.find_build(led_to.build_id if led_to else tag)
        if build is None or build.image is None:
            raise TagNotFound(tag, self.name)
        return build

    def add(self, build: BuildRecord) -> None:
        """Add a build; the oldest builds without tags are removed."""
        self.build_count += 1
        self.updated_at = _now()
        self.builds.append(build)
        kept = {tag.build_id for tag in self.tags.values()}
        spare = [build for build in self.builds if build.id not in kept and not build.is_under_way]
        for one in spare[: max(0, len(self.builds) - _KEPT_BUILDS)]:
            self.builds.remove(one)

    def point(self, tags: list[str], build: BuildRecord) -> None:
        """Point these tags to a build."""
        self.tags |= {tag: TagRecord(build_id=build.id) for tag in tags}
        self._release_images()

    def untag(self, tags: list[str]) -> None:
        for tag in tags:
            self.tags.pop(tag, None)
        self._release_images()

    def note_spawn(self) -> None:
        self.last_spawned_at, self.spawn_count = _now(), self.spawn_count + 1

    def _release_images(self) -> None:
        self.updated_at = _now()
        led_to = {tag.build_id for tag in self.tags.values()}
        for build in self.builds:
            if build.id not in led_to:
                build.image = None
