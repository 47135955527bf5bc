from collections.abc import Iterable

from sandbox_engine.records.template_names import DEFAULT_TAG, Reference, parse_tags
from sandbox_engine.system.errors import InvalidRequest, TagNotFound
from sandbox_engine.templates.library import Library
from sandbox_engine.templates.records import BuildRecord


async def assign_tags(
    library: Library, target: str, tags: Iterable[str]
) -> tuple[BuildRecord, list[str]]:
    """Let tags lead to the build that `name:tag` leads to."""
    reference = Reference.parse(target)
    template = library.get_changeable(reference.name)
    given = _parse_some(tags)
    build = template.ready_build(reference.tag)
    template.point(given, build)
    await library.save(template)
    return build, given


async def remove_tags(library: Library, name: str, tags: Iterable[str]) -> None:
    """Take tags from a template; a build that no tag leads to cannot be run any more."""
    template = library.get_changeable(name)
    taken = _parse_some(tags)
    if DEFAULT_TAG in taken:
        raise InvalidRequest(f"Cannot delete the '{DEFAULT_TAG}' tag")
    for tag in taken:
        if tag not in template.tags:
            raise TagNotFound(tag, template.name)
    template.untag(taken)
    await library.save(template)


def _parse_some(texts: Iterable[str]) -> list[str]:
    tags = parse_tags(texts)
    if not tags:
        raise InvalidRequest("At least one tag is required")
    return tags
