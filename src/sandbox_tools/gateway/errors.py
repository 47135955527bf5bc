from collections.abc import Iterator
from typing import Any

import httpx2
from mcp import MCPError

_LONGEST_DETAILS = 500


class Failed(Exception):
    """Why a server is not there: a sentence for everybody, and for those who may call its tools what it said itself."""

    def __init__(self, sentence: str, details: str = "") -> None:
        super().__init__(sentence)
        self.sentence = sentence
        self.details = details[:_LONGEST_DETAILS]

    def __str__(self) -> str:
        return f"{self.sentence} {self.details}".strip()

    @classmethod
    def of(cls, error: BaseException) -> "Failed":
        """Tell any failure of a connection, of which task groups make groups of groups."""
        leaves = list(_leaves(error))
        return next((leaf for leaf in leaves if isinstance(leaf, cls)), None) or cls(
            *_told(leaves[0])
        )

    @classmethod
    def by_status(cls, status: int) -> "Failed":
        return cls(_about_status(status))


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def _told(error: Any) -> tuple[str, str]:
    match error:
        case httpx2.HTTPStatusError():
            told = _about_status(error.response.status_code), ""
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            told = "Nothing answers at its url. Is it started, and is the url right?", ""
        case httpx2.HTTPError():
            told = "The connection to it broke.", type(error).__name__
        case TimeoutError():
            told = "It did not answer in time as an MCP server does.", ""
        case MCPError():
            told = "It refused to be connected.", f"It said: {error.error.message}"
        case OSError():
            told = "It could not be started.", error.strerror or ""
        case _:
            told = "It does not speak MCP as it should.", f"{type(error).__name__}: {error}"
    return told


def _about_status(status: int) -> str:
    match status:
        case 401 | 403:
            return f"It answered {status}: its headers lack a credential that it accepts."
        case 404 | 405:
            return f"It answered {status}: the path of its url is not that of an MCP endpoint."
    return f"It answered {status}."
