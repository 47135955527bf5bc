from collections.abc import AsyncIterator
from statistics import median
from typing import Any

from benchmarks.computers.sandboxes import create, memory, sandbox
from benchmarks.engine import Engine
from benchmarks.report import Figure
from benchmarks.server import Server
from benchmarks.timing import timed

_CREATES = 7
_MOST_FIRST_MS = 500


async def desktops(engine: Engine, server: Server) -> AsyncIterator[Figure]:
    """Measure a desktop from its create to the first picture."""
    firsts = []
    for _ in range(_CREATES):
        await engine.wait_ready()
        elapsed, created = await timed(_create_and_look(server))
        firsts.append(elapsed)
        await server.delete(created["id"])
    title = "desktop: warm create + first screenshot, p50"
    yield Figure(title, median(firsts), "ms", target=_MOST_FIRST_MS)
    async with sandbox(server, "desktop") as created:
        yield await memory(server, created["id"], "desktop")


async def _create_and_look(server: Server) -> dict[str, Any]:
    created = await create(server, "desktop")
    path = f"/v1/sandboxes/{created['id']}/desktop/screenshot"
    (await server.client.get(path)).raise_for_status()
    return created
