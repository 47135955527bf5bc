"""The agent that calls a tool. What it starts through the tool server belongs to its run, like what it starts itself.

Processes of a run are found by variables that they inherit. Processes of the tool server inherit those of the tool server,
so the variables are taken from the program at the other end of the connection, whichever agent that is.
"""

import asyncio
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fastmcp.server.dependencies import get_http_request

_MARKS = frozenset({"SANDBOX_AGENT_SESSION", "SANDBOX_TASK_RUN"})
_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
_LOCAL, _REMOTE, _INODE = 1, 2, 9  # columns of the tables


async def find_marks() -> dict[str, str]:
    """Return the variables by which the caller's run finds its processes; none if the caller is no agent in this sandbox."""
    try:
        request = get_http_request()
    except RuntimeError:  # over stdio: commands inherit them
        return {}
    client, server = request.scope.get("client"), request.scope.get("server")
    if client is None or server is None:
        return {}
    return await asyncio.to_thread(_marks_of_peer, client[1], server[1])


def _marks_of_peer(port: int, server_port: int) -> dict[str, str]:
    for inode in _sockets(port, server_port):
        for pid in _owners(f"socket:[{inode}]"):
            if marks := _marks_of(pid):
                return marks
    return {}


def _sockets(port: int, remote_port: int) -> Iterator[str]:
    """Find the peer's side of a connection between two ports of this machine."""
    ends = f":{port:04X}", f":{remote_port:04X}"
    for table in _TABLES:
        with suppress(OSError):
            for line in table.read_text().splitlines()[1:]:
                fields = line.split()
                if fields[_LOCAL].endswith(ends[0]) and fields[_REMOTE].endswith(ends[1]):
                    yield fields[_INODE]


def _owners(socket: str) -> Iterator[str]:
    for process in Path("/proc").iterdir():
        if process.name.isdigit() and _holds(process / "fd", socket):
            yield process.name


def _holds(descriptors: Path, socket: str) -> bool:
    try:
        return any(_target(entry) == socket for entry in descriptors.iterdir())
    except OSError:  # ended, or another account's
        return False


def _target(entry: Path) -> str:
    try:
        return str(entry.readlink())
    except OSError:
        return ""


def _marks_of(pid: str) -> dict[str, str]:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return {}
    pairs = (pair.partition("=") for pair in os.fsdecode(environment).split("\0"))
    return {name: value for name, _, value in pairs if name in _MARKS}
