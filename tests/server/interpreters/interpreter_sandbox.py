"""Sandboxes in which the small code interpreter of the tests runs."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from e2b import AsyncSandbox

from tests.server.reference.example_calls import STAND_INS
from tests.server.support.full_server import Outside, inside

GUEST = STAND_INS / "interpreter"
_LISTENS = "until (echo >/dev/tcp/127.0.0.1/49999) 2>/dev/null; do sleep 0.05; done"


@asynccontextmanager
async def sandbox_with_interpreter(outside: Outside, **fields: Any) -> AsyncIterator[str]:
    """Have a sandbox with an interpreter for as long as the block lasts; gives its id."""
    async with outside.api() as api:
        made = await api.post("/v1/sandboxes", json=fields)
        assert made.status_code == 201, made.text
        sandbox_id: str = made.json()["id"]
        try:
            await start_interpreter(outside, sandbox_id)
            yield sandbox_id
        finally:
            await api.delete(f"/v1/sandboxes/{sandbox_id}")


async def start_interpreter(outside: Outside, sandbox_id: str) -> None:
    await run_interpreter(await inside(outside, sandbox_id))


async def run_interpreter(sandbox: AsyncSandbox) -> None:
    await sandbox.files.write("/home/user/interpreter.py", GUEST.read_text())
    await sandbox.commands.run("python3 interpreter.py", background=True, timeout=0)
    await sandbox.commands.run(_LISTENS)
