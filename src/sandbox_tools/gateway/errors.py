from collections.abc import Iterator
from typing import Any

import httpx2
from mcp import MCPError

_MAX_DETAILS = 500


class UpstreamError(Exception):
    """Why a server is unavailable: `message` may be public, `details` may contain its own output."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.details = details[:_MAX_DETAILS]

    def __str__(self) -> str:
        return f"{self.message} {self.details}".strip()

    @classmethod
    def of(cls, error: BaseException) -> "UpstreamError":
        """Describe any failure of a connection; task groups nest exception groups."""
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
            description = (
                "Connection refused. Check that it is running and that the url is correct.",
                "",
            )
        case httpx2.HTTPError():
            description = "The connection was lost.", type(error).__name__
        case TimeoutError():
            description = "It did not complete the MCP handshake in time.", ""
        case MCPError():
            description = "It rejected the connection.", f"Its error: {error.error.message}"
        case OSError():
            description = "It failed to start.", error.strerror or ""
        case _:
            description = "It sent invalid MCP messages.", f"{type(error).__name__}: {error}"
    return description


def _describe_status(status: int) -> str:
    match status:
        case 401 | 403:
            return f"HTTP status {status}: check the credentials in its headers."
        case 404 | 405:
            return f"HTTP status {status}: the path of its url is not an MCP endpoint."
    return f"HTTP status {status}."
