import asyncio
from dataclasses import dataclass

_LARGEST_HEAD = 64 * 1024
_HOP_BY_HOP = frozenset({"connection", "keep-alive", "proxy-authorization", "proxy-connection"})


class MalformedHead(Exception):
    """The peer sent something that is no HTTP/1.1 head."""


@dataclass(frozen=True)
class Head:
    """The first line and the headers of a request or response."""

    first_line: tuple[str, str, str]
    headers: tuple[tuple[str, str], ...]

    def find(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)

    @property
    def forwarded_headers(self) -> list[tuple[str, str]]:
        """The headers without those of one connection; an upgrade keeps its own."""
        is_upgrade = self.find("upgrade") is not None
        dropped = _HOP_BY_HOP - ({"connection"} if is_upgrade else set())
        return [header for header in self.headers if header[0].lower() not in dropped]


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """Read a head; None if the connection ends before it."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise MalformedHead from None
        return None
    except asyncio.LimitOverrunError:
        raise MalformedHead from None
    first, *lines = raw.decode("latin-1").split("\r\n")[:-2]
    parts = first.split(" ", 2)
    if len(raw) > _LARGEST_HEAD or len(parts) < 2 or any(":" not in line for line in lines):  # noqa: PLR2004 - with a reason or version
        raise MalformedHead
    headers = tuple(
        (name, value.strip()) for name, _, value in (line.partition(":") for line in lines)
    )
    return Head((parts[0], parts[1], parts[2] if len(parts) > 2 else ""), headers)  # noqa: PLR2004


def write_head(first_line: str, headers: list[tuple[str, str]]) -> bytes:
    lines = [first_line, *(f"{name}: {value}" for name, value in headers), "", ""]
    return "\r\n".join(lines).encode("latin-1")
