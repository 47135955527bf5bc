import asyncio
import json
import os
import re
import socket
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from time import perf_counter, sleep

TOKEN = "benchmark"  # noqa: S105 - of a server on loopback that lives for a minute
_LOOK_SECONDS = 0.005


@dataclass(frozen=True)
class ToolServer:
    """A tool server in a process of its own."""

    pid: int
    port: int
    start_ms: float

    def resident_mb(self) -> float:
        rollup = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        found = re.search(r"^Rss: +(\d+) kB$", rollup, re.MULTILINE)
        assert found is not None
        return int(found[1]) / 1024


@asynccontextmanager
async def our_server() -> AsyncIterator[ToolServer]:
    """Start the tool server of sandboxes, with all tools and a small file `a.txt` in its workspace."""
    with tempfile.TemporaryDirectory(prefix="sandbox-bench-tools-") as directory:
        settings = Path(directory, "tools.json")
        settings.write_text(json.dumps({"token": TOKEN}))
        Path(directory, "a.txt").write_text("A line of a file as there are many.\n" * 20)
        where = ("--settings", str(settings), "--workspace", directory)
        async with _started(
            "sandbox_tools", "serve", "--host=127.0.0.1", *where, "--port"
        ) as server:
            yield server


@asynccontextmanager
async def bare_server() -> AsyncIterator[ToolServer]:
    async with _started("benchmarks.tool_server.floor") as server:
        yield server


@asynccontextmanager
async def _started(*module: str) -> AsyncIterator[ToolServer]:
    """Start it on a free port, and measure the time until it reports that it is healthy."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
    start = perf_counter()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", *module, str(port)),
        env=os.environ | {"HOME": tempfile.gettempdir()},
    )
    try:
        await asyncio.to_thread(_wait_until_well, port)
        yield ToolServer(process.pid, port, (perf_counter() - start) * 1000)
    finally:
        process.terminate()
        await process.wait()


def _wait_until_well(port: int) -> None:
    while not _is_well(port):
        sleep(_LOOK_SECONDS)


def _is_well(port: int) -> bool:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200  # noqa: PLR2004
    except ConnectionRefusedError:
        return False
    finally:
        connection.close()
