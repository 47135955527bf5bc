"""Creates sandboxes of a template and measures their memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from benchmarks.report import Figure
from benchmarks.server import Server

_SETTLE_S = 5


async def create(server: Server, template: str) -> dict[str, Any]:
    """Create a sandbox; it runs when this returns."""
    body = {"template": template, "timeout_s": 600}
    answer = await server.client.post("/v1/sandboxes", json=body)
    assert answer.is_success, answer.text
    created: dict[str, Any] = answer.json()
    assert created["state"] == "running", created["state_reason"]
    return created


@asynccontextmanager
async def sandbox(server: Server, template: str) -> AsyncIterator[dict[str, Any]]:
    created = await create(server, template)
    try:
        yield created
    finally:
        await server.delete(created["id"])


async def memory(server: Server, sandbox_id: str, name: str) -> Figure:
    """Measure the memory of an idle sandbox, with the page cache that it alone uses."""
    await asyncio.sleep(_SETTLE_S)
    answer = await server.client.get(f"/v1/sandboxes/{sandbox_id}/metrics")
    answer.raise_for_status()
    used = answer.json()["items"][-1]["memory_used"]
    return Figure(f"{name}, memory of an idle sandbox", used / 2**20, "MiB")
