"""How any client of MCP calls tools, so that one piece of work is done by all of them.

It runs in the environments of others too: nothing but the standard library is imported.
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Answer:
    """What a tool gave, as its client has it."""

    text: str
    pictures: tuple[bytes, ...] = ()
    failed: bool = False


Call = Callable[[str, dict[str, Any]], Awaitable[Answer]]


@dataclass(frozen=True)
class Site:
    """Where a client works: the sandbox's address, the key to it, and where pictures are kept."""

    url: str
    key: str
    pictures: str
    name: str

    @property
    def place(self) -> str:
        """Name a directory in the sandbox that is this client's own."""
        return f"/workspace/{self.name}"


@dataclass(frozen=True)
class Hands:
    """Uses tools by a client, and notes which."""

    site: Site
    call: Call
    used: set[str] = field(default_factory=set)

    async def use(self, tool: str, **arguments: Any) -> str:
        """Call a tool that succeeds; gives what it says."""
        return (await self._succeed(tool, arguments)).text

    async def look(self, tool: str, **arguments: Any) -> bytes:
        """Call a tool that shows a picture, and keep that."""
        answer = await self._succeed(tool, arguments)
        assert answer.pictures, f"{tool} showed no picture: {answer.text}"
        [picture] = answer.pictures
        Path(self.site.pictures, f"{self.site.name}-{tool}.png").write_bytes(picture)
        return picture

    async def fail(self, tool: str, **arguments: Any) -> str:
        """Call a tool that cannot do it; gives why."""
        answer = await self.call(tool, arguments)
        assert answer.failed, f"{tool} succeeded: {answer.text}"
        return answer.text

    async def _succeed(self, tool: str, arguments: dict[str, Any]) -> Answer:
        answer = await self.call(tool, arguments)
        assert not answer.failed, f"{tool} failed: {answer.text}"
        self.used.add(tool)
        return answer
