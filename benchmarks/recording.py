"""Commands with stored output."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from benchmarks.engine import started_engine
from benchmarks.report import Figure
from benchmarks.server import Server, started_server
from benchmarks.timing import medians, timed

_ROUNDS = 100
_RATE_MB = 50
_SECONDS = 6
_MOST_ADDED_MB = 64
_KEPT = 4 * 2**20
_LOOK_SECONDS = 0.1
# In a sandbox: writes lines at a fixed rate in MB/s.
_FLOOD = f"""
import os, time
megabyte = (b"x" * 63 + b"\\n") * (10**6 // 64)
begun = time.monotonic()
for number in range({_RATE_MB * _SECONDS}):
    early = begun + number / {_RATE_MB} - time.monotonic()
    if early > 0:
        time.sleep(early)
    os.write(1, megabyte)
"""


async def command_recording() -> AsyncIterator[Figure]:
    """Compare a command with the bare SDK's, and check that a flood of output is read as fast as it is written."""
    async with started_engine() as engine, started_server(engine) as server:
        sandbox_id, sandbox = await server.create(), await engine.create()

        async def ours() -> float:
            elapsed, _ = await timed(_run(server, sandbox_id, "true"))
            return elapsed

        async def floor() -> float:
            elapsed, _ = await timed(sandbox.commands.run("true"))
            return elapsed

        p50, floor_p50 = await medians(ours, floor, rounds=_ROUNDS)
        yield Figure(
            "command through the server, p50 / SDK", p50, "ms", target=1.4, floor=floor_p50
        )
        await sandbox.kill()
        async for figure in _drain(server, sandbox_id):
            yield figure
        await server.delete(sandbox_id)


async def _drain(server: Server, sandbox_id: str) -> AsyncIterator[Figure]:
    before = server.resident_mb()
    busy = server.cpu_seconds()
    running = asyncio.create_task(timed(_run(server, sandbox_id, f"python3 -c '{_FLOOD}'")))
    most = before
    while not running.done():
        await asyncio.sleep(_LOOK_SECONDS)
        most = max(most, server.resident_mb())
    elapsed, ended = running.result()
    kept = f"/v1/sandboxes/{sandbox_id}/commands/{ended['id']}/output?stream=stdout&limit=1"
    record = (await server.client.get(kept)).json()
    size, cut = record["size"], record["cut"]
    took = f"{_RATE_MB * _SECONDS} MB of output at {_RATE_MB} MB/s"
    yield Figure(took, elapsed, "ms", target=1.1, floor=_SECONDS * 1000)
    yield Figure("the same, memory added", most - before, "MiB", target=_MOST_ADDED_MB)
    yield Figure("the same, time of a core", (server.cpu_seconds() - busy) * 1000, "ms")
    yield Figure("the same, what is kept", size - cut, "bytes", target=_KEPT)
    yield Figure("the same, what was read", _RATE_MB * _SECONDS * 10**6 / size, "of it", target=1)


async def _run(server: Server, sandbox_id: str, cmd: str) -> dict[str, Any]:
    answer = await server.client.post(f"/v1/sandboxes/{sandbox_id}/commands", json={"cmd": cmd})
    ended: dict[str, Any] = answer.json()
    assert ended["exit_code"] == 0, ended
    return ended
