import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from statistics import median
from typing import Any

from playwright.async_api import async_playwright
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.computers.sandboxes import create, memory, sandbox
from benchmarks.engine import Engine
from benchmarks.report import Figure
from benchmarks.server import Server
from benchmarks.timing import medians, timed

_CREATES = 7
_BATCHES = 15
_CALLS = 50
_WAKES = 7
_SESSIONS = 100
_PORT = "9222"
_MOST_FIRST_MS = 150
_MOST_RATIO = 1.3
_MOST_WAKE_MS = 50


async def browsers(engine: Engine, server: Server) -> AsyncIterator[Figure]:
    """Compare CDP by our links with CDP through the engine alone, whose sandboxes have the same browser."""
    yield await _first_connect(engine, server)
    async with sandbox(server, "browser") as created, connect(created["cdp_url"]) as ours:
        async with _direct(engine) as direct:
            p50, floor = await medians(
                partial(_each, ours), partial(_each, direct), rounds=_BATCHES
            )
        title = "browser: CDP round trip / through the engine alone"
        yield Figure(title, p50, "ms", target=_MOST_RATIO, floor=floor)
        yield await memory(server, created["id"], "browser")
        wakes = [await _wake(server, created["id"], ours) for _ in range(_WAKES)]
        title = "browser: message to a paused browser, p50"
        yield Figure(title, median(wakes), "ms", target=_MOST_WAKE_MS)
    elapsed, states = await timed(_many_sessions(server))
    failed = sum(state != "running" for state in states)
    yield Figure(f"browser: of {_SESSIONS} sessions by the queue, failed", failed, "", target=0)
    yield Figure("the same, time of each", elapsed / _SESSIONS, "ms")


async def _first_connect(engine: Engine, server: Server) -> Figure:
    firsts = []
    async with async_playwright() as playwright:
        for _ in range(_CREATES):
            await engine.wait_ready()

            async def create_and_connect() -> dict[str, Any]:
                created = await create(server, "browser")
                await playwright.chromium.connect_over_cdp(created["cdp_url"])
                return created

            elapsed, created = await timed(create_and_connect())
            firsts.append(elapsed)
            await server.delete(created["id"])
    title = "browser: warm create + connectOverCDP, p50"
    return Figure(title, median(firsts), "ms", target=_MOST_FIRST_MS)


@asynccontextmanager
async def _direct(engine: Engine) -> AsyncIterator[ClientConnection]:
    """Connect to Chromium through the engine's port proxy."""
    created = await engine.client.AsyncSandbox.create("browser", timeout=600, retries=0)
    headers = {"E2b-Sandbox-Id": created.sandbox_id, "E2b-Sandbox-Port": _PORT}
    if created.traffic_access_token:
        headers["E2b-Traffic-Access-Token"] = created.traffic_access_token
    version = await created.commands.run(f"curl -s localhost:{_PORT}/json/version")
    path = json.loads(version.stdout)["webSocketDebuggerUrl"].partition(_PORT)[2]
    url = engine.url.replace("http", "ws", 1) + path
    async with connect(url, additional_headers=headers, origin=None) as connection:
        yield connection
    await created.kill()


async def _each(connection: ClientConnection) -> float:
    """Return the milliseconds of one of several messages in a row."""

    async def batch() -> None:
        for number in range(_CALLS):
            await _ask(connection, number)

    elapsed, _ = await timed(batch())
    return elapsed / _CALLS


async def _ask(connection: ClientConnection, number: int) -> None:
    await connection.send(json.dumps({"id": number, "method": "Browser.getVersion"}))
    while json.loads(await connection.recv()).get("id") != number:
        pass


async def _wake(server: Server, sandbox_id: str, connection: ClientConnection) -> float:
    paused = await server.client.post(f"/v1/sandboxes/{sandbox_id}/pause")
    paused.raise_for_status()
    assert paused.json()["state"] == "paused", paused.text
    elapsed, _ = await timed(_ask(connection, 1))
    return elapsed


async def _many_sessions(server: Server) -> list[str]:
    """Create more sessions than there are slots; each ends when it has run. Returns the state that each reached."""
    return await asyncio.gather(*(_session(server) for _ in range(_SESSIONS)))


async def _session(server: Server) -> str:
    answer = await server.client.post("/v1/browsers", params={"wait": 50}, json={})
    answer.raise_for_status()
    path = f"/v1/browsers/{answer.json()['id']}"
    state: str = answer.json()["state"]
    while state == "pending":
        await asyncio.sleep(0.5)
        state = (await server.client.get(path)).json()["state"]
    (await server.client.post(f"{path}/release")).raise_for_status()
    return state
