from collections.abc import Awaitable, Callable
from typing import TypeVar

from e2b.api.client.types import Response

from sandbox_server.domain.errors import BackendRefused

T = TypeVar("T")

_MOST_PAGES = 1000
_NEXT = "X-Next-Token"


async def read_all(backend: str, read: Callable[[str], Awaitable[Response[list[T]]]]) -> list[T]:
    """Read all pages of a list.

    An endless list is an error: missing entries of a partial list would count as deleted.
    """
    found: list[T] = []
    tokens = {""}
    token = ""
    while True:
        answer = await read(token)
        found += answer.parsed or []
        token = answer.headers.get(_NEXT) or ""
        if not token:
            return found
        if token in tokens:
            raise BackendRefused(backend, "its list does not end: it repeats the token of a page")
        if len(tokens) >= _MOST_PAGES:
            raise BackendRefused(backend, f"its list does not end after {_MOST_PAGES} pages")
        tokens.add(token)
