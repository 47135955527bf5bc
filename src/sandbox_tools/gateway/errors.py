from collections.abc import Iterator
from typing import Any

import httpx2
from mcp import MCPError

_MAX_DETAILS = 500


class UpstreamError(Exception):
    """Why a server is not there: a sentence for everybody, and for those who may call its tools what it said itself."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.details = details[:_MAX_DETAILS]

    def __str__(self) -> str:
        return f"{self.message} {self.details}".strip()

    @classmethod
    def of(cls, error: BaseException) -> "UpstreamError":
        """Tell any failure of a connection, of which task groups make groups of groups."""
        leaves = list(_flatten(error))
        return next((leaf for leaf in leaves if isinstance(leaf, cls)), None) or cls(
            *_told(leaves[0])
        )

    @classmethod
    def by_status(cls, status: int) -> "UpstreamError":
        return cls(_describe_status(status))


def _flatten(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _flatten(one)
    else:
        yield error


def _told(error: Any) -> tuple[str, str]:
    match error:
        case httpx2.HTTPStatusError():
            description = _describe_status(error.response.status_code), ""
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            description = "Nothing answers at its url. Is it started, and is the url right?", ""
        case httpx2.HTTPError():
            description = "The connection to it broke.", type(error).__name__
        case TimeoutError():
            description = "It did not answer in time as an MCP server does.", ""
        case MCPError():
            description = "It refused to be connected.", f"It said: {error.error.message}"
        case OSError():
            description = "It could not be started.", error.strerror or ""
        case _:
            description = "It does not speak MCP as it should.", f"{type(error).__name__}: {error}"
    return description


def _describe_status(status: int) -> str:
    match status:
        case 401 | 403:
            return f"It answered {status}: its headers lack a credential that it accepts."
        case 404 | 405:
            return f"It answered {status}: the path of its url is not that of an MCP endpoint."
    return f"It answered {status}."
