"""A server inside a sandbox that tells what reached it, and how a test asks it."""

import json
from dataclasses import dataclass
from pathlib import Path

from e2b import AsyncSandbox

from tests.engine.polling import until

PROGRAM = Path(__file__).with_name("request_recorder_guest.py")


@dataclass(frozen=True)
class Recorded:
    """A request as a server in a sandbox got it."""

    method: str
    target: str
    headers: list[tuple[str, str]]
    size: int = 0
    hash: str = ""

    @classmethod
    def of(cls, text: bytes | str) -> "Recorded":
        """Read what the recorder answered to an ordinary request."""
        told = json.loads(text)
        return cls(**{**told, "headers": [(name, value) for name, value in told["headers"]]})

    @classmethod
    def of_head(cls, head: str) -> "Recorded":
        """Read what the recorder sends first on a WebSocket."""
        first, *lines = head.split("\r\n")
        method, target, _ = first.split()
        pairs = (line.partition(": ")[::2] for line in lines)
        return cls(method, target, [(name, value) for name, value in pairs])

    def header(self, name: str) -> str | None:
        """Get the one value of a header, or None."""
        found = [value for each, value in self.headers if each.lower() == name.lower()]
        assert len(found) < 2, found
        return found[0] if found else None

    def __str__(self) -> str:
        return "\n".join([self.target, *(f"{name}: {value}" for name, value in self.headers)])


async def start_recorder(sandbox: AsyncSandbox, port: int) -> None:
    """Have a recorder listen on a port of the sandbox."""
    await sandbox.files.write("/home/user/recording.py", PROGRAM.read_text())
    await sandbox.commands.run(f"python3 recording.py {port}", background=True, timeout=0)

    async def listens() -> bool:
        probe = f"python3 -c 'import socket; socket.create_connection((\"127.0.0.1\", {port}))'"
        return (await sandbox.commands.run(f"{probe} 2>&1 || echo no")).stdout == ""

    await until(listens)
