import asyncio
import os
import re
import shutil
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
from e2b import E2B, AsyncSandbox

IMAGES = Path(__file__).parent.parent / ".cache" / "images"
_VAR_TMP = "/var/tmp"  # noqa: S108 - not in memory, as /tmp may be
_POLL_SECONDS = 0.02
_PREFIX = "SANDBOX_ENGINE_"


@dataclass(frozen=True)
class Engine:
    """An engine for one benchmark on a free port, with a client."""

    client: E2B
    state_dir: Path
    url: str
    api_key: str

    async def create(self) -> AsyncSandbox:
        """Create a sandbox without retries."""
        return await self.client.AsyncSandbox.create(timeout=600, retries=0)

    async def wait_ready(self) -> None:
        """Wait until the warm pool is full."""
        headers = {"X-API-Key": self.api_key}
        async with httpx.AsyncClient(base_url=self.url, headers=headers) as client:
            while True:
                shelves = (await client.get("/ready-sandboxes")).json()
                if all(shelf["ready"] >= shelf["wanted"] for shelf in shelves):
                    return
                await asyncio.sleep(_POLL_SECONDS)


@asynccontextmanager
async def started_engine(*flags: str, parent: Path | None = None) -> AsyncIterator[Engine]:
    """Start an engine with a state directory of its own; both are removed afterwards."""
    state_dir = Path(tempfile.mkdtemp(prefix="sandbox-bench-", dir=parent or _VAR_TMP))
    process = await _start("serve", state_dir, *flags)
    try:
        url = await _listening_url(process)
        key = (state_dir / "api.key").read_text().strip()
        yield Engine(E2B(api_key=key, api_url=url, sandbox_url=url), state_dir, url, key)
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
        await (await _start("reset", state_dir)).wait()
        shutil.rmtree(state_dir)


async def _start(command: str, state_dir: Path, *flags: str) -> Process:
    defaults = {name: value for name, value in os.environ.items() if not name.startswith(_PREFIX)}
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandbox_engine", command, "--log-level", "WARNING"),
        *("--port", "0", "--state-dir", str(state_dir), "--images-dir", str(IMAGES)),
        *("--ready-sandboxes", "0"),
        *flags,
        stdout=PIPE,
        env=defaults,
    )


async def _listening_url(process: Process) -> str:
    assert process.stdout is not None
    async for line in process.stdout:
        if found := re.search(r"listening on (https?://\S+)", line.decode()):
            return found[1]
    raise RuntimeError("the engine ended before it listened")
