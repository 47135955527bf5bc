"""Which of our files a request executes, from its route on."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any

from fastapi.routing import APIRoute

SOURCES = str(Path(__file__).parents[2] / "src") + "/"

_is_traced: ContextVar[bool] = ContextVar("is_traced", default=False)


@contextmanager
def traced_requests() -> Iterator[set[str]]:
    """Collect the files below src/ that requests execute while the block runs, tasks that they start included."""
    files: set[str] = set()
    handle = APIRoute.handle

    async def handle_traced(route: APIRoute, *arguments: Any) -> None:
        _is_traced.set(True)
        await handle(route, *arguments)

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and _is_traced.get() and frame.f_code.co_filename.startswith(SOURCES):
            files.add(frame.f_code.co_filename.removeprefix(SOURCES))

    APIRoute.handle = handle_traced  # type: ignore[method-assign, assignment]
    sys.setprofile(note)
    try:
        yield files
    finally:
        sys.setprofile(None)
        APIRoute.handle = handle  # type: ignore[method-assign]
