"""Finds every public method of the installed SDK."""

import inspect
import typing
from types import ModuleType
from typing import Any

_CLASSES = ("Sandbox", "Template", "Volume", "Secret")
_PARTS = ("files", "commands", "pty", "git")
_HANDLES = ("CommandHandle", "WatchHandle", "CommandInputHandle")
_PAGINATORS = ("SandboxPaginator", "SnapshotPaginator", "SecretPaginator")


def public_methods(e2b: ModuleType, *, is_async: bool) -> set[str]:
    """List them as `Class.method`, named as in the blocking variant."""
    prefix = "Async" if is_async else ""
    found = set[str]()
    for name in (*_CLASSES, *_HANDLES, *_PAGINATORS):
        cls = getattr(e2b, prefix + name, None)
        if cls is not None:
            found |= {f"{name}.{method}" for method in _methods(cls)}
    if (template := getattr(e2b, prefix + "Template", None)) is not None:
        builder = type(template().from_base_image())
        found |= {f"TemplateBuilder.{method}" for method in _methods(builder)}
    sandbox = getattr(e2b, prefix + "Sandbox")
    for part in _PARTS:
        if (cls := _type_of(sandbox, part)) is not None:
            found |= {f"{part}.{method}" for method in _methods(cls)}
    return found


def _methods(cls: type) -> list[str]:
    return [
        name for name in dir(cls) if not name.startswith("_") and callable(getattr(cls, name, None))
    ]


def _type_of(cls: type, part: str) -> Any:
    attribute = inspect.getattr_static(cls, part, None)
    return attribute and typing.get_type_hints(attribute.fget)["return"]
