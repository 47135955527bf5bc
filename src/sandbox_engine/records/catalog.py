from collections.abc import Callable
from dataclasses import dataclass

from sandbox_engine.images.image import Image
from sandbox_engine.system.errors import TemplateNotFound


@dataclass(frozen=True)
class Template:
    """The origin of a sandbox: a template or snapshot.

    `base` is the snapshot whose files lie below the sandbox's own, if any.
    """

    id: str
    name: str
    image: Image
    start_command: str = ""
    ready_command: str = ""
    cpu_count: int | None = None
    memory_mb: int | None = None
    base: str | None = None


FindTemplate = Callable[[str], Template | None]


class Catalog:
    """All templates and snapshots that sandboxes can be created from."""

    def __init__(self) -> None:
        self._sources: list[FindTemplate] = []
        self._listeners: list[Callable[[str], None]] = []

    def add(self, source: FindTemplate) -> None:
        """Add a source; sources are searched in the order of adding."""
        self._sources.append(source)

    def on_use(self, listener: Callable[[str], None]) -> None:
        """Register a callback for the template ID of each new sandbox."""
        self._listeners.append(listener)

    def note_use(self, template_id: str) -> None:
        for listener in self._listeners:
            listener(template_id)

    def get(self, reference: str) -> Template:
        """Return the template with this ID or name, optionally with `:tag`."""
        for find in self._sources:
            if (template := find(reference)) is not None:
                return template
        raise TemplateNotFound(reference)
