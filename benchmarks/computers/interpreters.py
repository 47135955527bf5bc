from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from statistics import median
from typing import Any

import httpx
from jupyter_client.asynchronous.client import AsyncKernelClient
from jupyter_client.manager import start_new_async_kernel

from benchmarks.computers.sandboxes import create, memory, sandbox
from benchmarks.engine import Engine
from benchmarks.report import Figure
from benchmarks.server import Server
from benchmarks.timing import medians, timed

_TEMPLATE = "code-interpreter-v1"
_CREATES = 7
_BATCHES = 15
_CALLS = 10
_CODE = "1 + 1"
_PORT = "49999"
_MOST_FIRST_MS = 150
_MOST_RATIO = 1.3


async def interpreters(engine: Engine, server: Server) -> AsyncIterator[Figure]:
    """Compare run_code with a bare kernel: jupyter_client on the host, without a sandbox."""
    firsts = []
    for _ in range(_CREATES):
        await engine.wait_ready()
        elapsed, created = await timed(_create_and_run(server))
        firsts.append(elapsed)
        await server.delete(created["id"])
    title = "code: warm create + first run_code, p50"
    yield Figure(title, median(firsts), "ms", target=_MOST_FIRST_MS)
    async with sandbox(server, _TEMPLATE) as created, _bare_kernel() as kernel:
        bare = partial(_each, partial(_execute, kernel))
        ours = partial(_each, partial(_run, server, created["id"]))
        p50, floor = await medians(ours, bare, rounds=_BATCHES)
        title = "code: run_code by our API, recorded / bare kernel"
        yield Figure(title, p50, "ms", target=_MOST_RATIO, floor=floor)
        async with _direct(engine) as direct:
            p50, floor = await medians(partial(_each, direct), bare, rounds=_BATCHES)
        title = "code: run_code by E2B's protocol / bare kernel"
        yield Figure(title, p50, "ms", target=_MOST_RATIO, floor=floor)
        yield await memory(server, created["id"], "code")


async def _create_and_run(server: Server) -> dict[str, Any]:
    created = await create(server, _TEMPLATE)
    await _run(server, created["id"])
    return created


async def _run(server: Server, sandbox_id: str) -> None:
    answer = await server.client.post(f"/v1/sandboxes/{sandbox_id}/code", json={"code": _CODE})
    answer.raise_for_status()
    assert answer.json()["results"], answer.text


async def _each(run: Any) -> float:
    """Return the milliseconds of one of several calls in a row."""

    async def batch() -> None:
        for _ in range(_CALLS):
            await run()

    elapsed, _ = await timed(batch())
    return elapsed / _CALLS


@asynccontextmanager
async def _bare_kernel() -> AsyncIterator[AsyncKernelClient]:
    manager, client = await start_new_async_kernel()
    try:
        yield client
    finally:
        client.stop_channels()
        await manager.shutdown_kernel(now=True)


async def _execute(kernel: AsyncKernelClient) -> None:
    reply = await kernel.execute_interactive(_CODE, output_hook=lambda _message: None, timeout=60)
    assert reply["content"]["status"] == "ok"


@asynccontextmanager
async def _direct(engine: Engine) -> AsyncIterator[Any]:
    """Call the interpreter's server through the engine, as E2B's SDK does."""
    created = await engine.client.AsyncSandbox.create(_TEMPLATE, timeout=600, retries=0)
    headers = {"E2b-Sandbox-Id": created.sandbox_id, "E2b-Sandbox-Port": _PORT}
    if created.traffic_access_token:
        headers["E2b-Traffic-Access-Token"] = created.traffic_access_token
    async with httpx.AsyncClient(base_url=engine.url, headers=headers, trust_env=False) as client:

        async def run() -> None:
            answer = await client.post("/execute", json={"code": _CODE}, timeout=60)
            answer.raise_for_status()
            assert '"result"' in answer.text, answer.text

        yield run
    await created.kill()
