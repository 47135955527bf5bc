import asyncio
import os
from collections.abc import Iterable
from datetime import timedelta
from pathlib import Path

from sandbox_engine.images.image import Image
from sandbox_engine.records.catalog import Template
from sandbox_engine.records.template_names import (
    DEFAULT_TAG,
    Reference,
    parse_name,
    parse_tags,
)
from sandbox_engine.system.errors import (
    BuildNotFound,
    InvalidRequest,
    TagNotFound,
    TemplateNotFound,
    TemplateProtected,
)
from sandbox_engine.system.ids import new_id
from sandbox_engine.system.settings import Resources
from sandbox_engine.templates.records import (
    BuildRecord,
    BuildStatus,
    Failure,
    TemplateRecord,
)
from sandbox_engine.templates.store import TemplateStore

_LEAST_MEMORY_MB = 128


BASE = "base"

_COUNTS_EVERY = timedelta(seconds=30)

_SUPERSEDED = Failure(message="The build was canceled because it was superseded by a newer one.")


class Library:
    """The templates of this engine with their builds, names and tags."""

    def __init__(self, store: TemplateStore, *, defaults: Resources) -> None:
        self._store = store
        self._defaults = defaults
        self._templates = {template.id: template for template in store.load_all()}
        self._used: set[str] = set()

    async def keep_base(self, image: Image) -> None:
        """Point the `base` template to this image."""
        template = self._templates.setdefault(BASE, TemplateRecord(id=BASE, names=[BASE]))
        resources = self._defaults
        if not template.builds or template.builds[-1].image != image:
            template.builds.clear()
            template.add(BuildRecord(tags=[DEFAULT_TAG], cpu_count=0, memory_mb=0))
            template.builds[-1].succeed(image)
            template.point([DEFAULT_TAG], template.builds[-1])
        template.builds[-1].cpu_count = resources.cpu_count
        template.builds[-1].memory_mb = resources.memory_mb
        await self._store.keep(template)

    def list_all(self) -> list[TemplateRecord]:
        """List all templates, oldest first."""
        return sorted(
            self._templates.values(), key=lambda template: (template.created_at, template.id)
        )

    def get(self, name: str) -> TemplateRecord:
        """Return the template with this ID or name."""
        template = self._find(name)
        if template is None:
            raise TemplateNotFound(name)
        return template

    def get_changeable(self, name: str) -> TemplateRecord:
        """Return the template with this ID or name unless it belongs to the engine."""
        template = self.get(parse_name(name))
        _check_changeable(template)
        return template

    def get_build(self, name: str, build_id: str) -> tuple[TemplateRecord, BuildRecord]:
        """Return a build of a template in any state."""
        template = self.get(parse_name(name))
        build = template.find_build(build_id)
        if build is None:
            raise BuildNotFound(build_id, template.id)
        return template, build

    def find(self, text: str) -> Template | None:
        """Find the template for new sandboxes by ID or name, with optional tag."""
        try:
            reference = Reference.parse(text)
        except InvalidRequest:
            return None
        template = self._find(reference.name)
        if template is None:
            return None
        return _runnable(template, template.ready_build(reference.tag))

    def resolve(self, text: str) -> TemplateRecord:
        """Return the template with this ID or name; a given tag must exist."""
        reference = Reference.parse(text)
        template = self.get(reference.name)
        if reference.tag is not None:
            template.ready_build(reference.tag)
        return template

    async def request_build(
        self, text: str, *, tags: Iterable[str], cpu_count: int | None, memory_mb: int | None
    ) -> tuple[TemplateRecord, BuildRecord]:
        """Add a build to the template with this name, creating it if new."""
        reference = Reference.parse(text)
        cpu_count, memory_mb = check_resources(
            self._defaults, cpu_count=cpu_count, memory_mb=memory_mb
        )
        asked = [*([reference.tag] if reference.tag else []), *tags]
        build = BuildRecord(
            tags=parse_tags(asked) or [DEFAULT_TAG], cpu_count=cpu_count, memory_mb=memory_mb
        )
        template = self._find(reference.name) or TemplateRecord(id=new_id(), names=[reference.name])
        _check_changeable(template)
        for other in template.builds:
            if other.status is BuildStatus.WAITING and set(other.tags) & set(build.tags):
                other.fail(_SUPERSEDED)
        template.add(build)
        self._templates[template.id] = template
        await self._store.keep(template)
        return template, build

    async def save(self, template: TemplateRecord) -> None:
        """Save a template unless it was deleted meanwhile."""
        if template.id in self._templates:
            await self._store.keep(template)

    async def assign_tags(self, target: str, tags: Iterable[str]) -> tuple[BuildRecord, list[str]]:
        """Point tags to the build that `name:tag` refers to."""
        reference = Reference.parse(target)
        template = self.get_changeable(reference.name)
        new_tags = _parse_some(tags)
        build = template.ready_build(reference.tag)
        template.point(new_tags, build)
        await self.save(template)
        return build, new_tags

    async def remove_tags(self, name: str, tags: Iterable[str]) -> None:
        """Remove tags from a template; builds without tags cannot be used any more."""
        template = self.get_changeable(name)
        taken = _parse_some(tags)
        if DEFAULT_TAG in taken:
            raise InvalidRequest(f"Cannot delete the '{DEFAULT_TAG}' tag")
        for tag in taken:
            if tag not in template.tags:
                raise TagNotFound(tag, template.name)
        template.untag(taken)
        await self.save(template)

    async def publish(self, name: str, *, public: bool) -> TemplateRecord:
        """Store whether the template is public; the engine does not restrict access by it."""
        template = self.get_changeable(name)
        template.public = public
        await self._store.keep(template)
        return template

    def delete(self, template: TemplateRecord) -> None:
        """Delete a template; its sandboxes keep running."""
        self._templates.pop(template.id, None)
        self._store.remove(template.id)

    def note_use(self, template_id: str) -> None:
        """Count a new sandbox; the count is saved later."""
        template = self._templates.get(template_id)
        if template is not None:
            template.note_spawn()
            self._used.add(template_id)

    async def keep_counts(self) -> None:
        """Save usage counts periodically."""
        while True:
            await asyncio.sleep(_COUNTS_EVERY.total_seconds())
            await self.save_counts()

    async def save_counts(self) -> None:
        while self._used:
            template = self._templates.get(self._used.pop())
            if template is not None:
                await self._store.keep(template)

    def layers(self) -> set[Path]:
        """Collect the layers of all usable builds."""
        builds = [build for template in self._templates.values() for build in template.builds]
        return {layer for build in builds if build.image for layer in build.image.layers}

    def _find(self, name: str) -> TemplateRecord | None:
        by_name = (template for template in self._templates.values() if name in template.names)
        return self._templates.get(name) or next(by_name, None)


def _runnable(template: TemplateRecord, build: BuildRecord) -> Template:
    """Convert a ready build to a template for sandboxes."""
    assert build.image is not None
    return Template(
        id=template.id,
        name=template.name,
        image=build.image,
        start_command=build.start_command,
        ready_command=build.ready_command,
        cpu_count=build.cpu_count,
        memory_mb=build.memory_mb,
    )


def _check_changeable(template: TemplateRecord) -> None:
    if template.id == BASE:
        raise TemplateProtected(BASE)


def check_resources(
    defaults: Resources, *, cpu_count: int | None, memory_mb: int | None
) -> tuple[int, int]:
    """Check CPUs and memory by E2B's rules and this machine's limits."""
    if cpu_count is not None:
        _check_cpus(cpu_count)
    if memory_mb is not None:
        _check_memory(memory_mb)
    return cpu_count or defaults.cpu_count, memory_mb or defaults.memory_mb


def _check_cpus(count: int) -> None:
    if count < 1:
        raise InvalidRequest("CPU count must be at least 1")
    if count != 1 and count % 2:
        raise InvalidRequest("CPU count must be 1 or an even number")
    available_cpus = os.cpu_count() or 1
    if count > available_cpus:
        raise InvalidRequest(
            f"CPU count can't be higher than {available_cpus}, the number of CPUs of the engine"
        )


def _check_memory(size_mb: int) -> None:
    if size_mb < _LEAST_MEMORY_MB:
        raise InvalidRequest(f"Memory must be at least {_LEAST_MEMORY_MB} MiB")
    if size_mb % 2:
        raise InvalidRequest("Memory must be divisible by 2")
    available_mb = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") >> 20
    if size_mb > available_mb:
        raise InvalidRequest(
            f"Memory can't be higher than {available_mb} MiB, the memory of the engine's machine"
        )


def _parse_some(texts: Iterable[str]) -> list[str]:
    tags = parse_tags(texts)
    if not tags:
        raise InvalidRequest("At least one tag is required")
    return tags
