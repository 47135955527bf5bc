from collections.abc import Callable
from dataclasses import dataclass

from sandbox_engine.images.image import Image
from sandbox_engine.system.errors import TemplateNotFound


@dataclass(frozen=True)
class Template:
    """What a sandbox is created from.

    `base` is the snapshot whose files lie beneath the sandbox's own, where there is one.
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
    """Everything that a sandbox can be created from, whoever keeps it."""

    def __init__(self) -> None:
        self._sources: list[FindTemplate] = []
        self._listeners: list[Callable[[str], None]] = []

    def add(self, source: FindTemplate) -> None:
        """Look for templates there too, after the sources added before."""
        self._sources.append(source)

    def on_use(self, listener: Callable[[str], None]) -> None:
        """Tell the id of each template that a sandbox was created from."""
        self._listeners.append(listener)

    def note_use(self, template_id: str) -> None:
        for listener in self._listeners:
            listener(template_id)

    def get(self, reference: str) -> Template:
        """Get the template of this id or name, which may end in `:` and a tag."""
        for find in self._sources:
            if (template := find(reference)) is not None:
                return template
        raise TemplateNotFound(reference)
