import asyncio
import re
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx

from benchmarks.stub.app import API_KEY
from sandbox_server.providers.protocol.provider import Endpoint


@dataclass(frozen=True)
class Stub:
    """A provider without real sandboxes, in a process of its own."""

    url: str
    api_key: str = API_KEY

    def endpoint(self, name: str = "stub") -> Endpoint:
        return Endpoint(
            name=name,
            api_url=self.url,
            api_key=self.api_key,
            sandbox_url=self.url,
            domain=self.url.removeprefix("http://"),
        )

    async def arrivals(self, act: str) -> dict[str, float]:
        """Return when each sandbox first got this call, by this machine's clock."""
        async with httpx.AsyncClient(base_url=self.url, trust_env=False) as client:
            answer = await client.get(f"/arrivals/{act}", timeout=60)
        arrivals: dict[str, float] = answer.json()
        return arrivals


@asynccontextmanager
async def started_stub() -> AsyncIterator[Stub]:
    """Start a stub on a free port of the loopback interface; it ends with the block."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "benchmarks.stub"), stdout=PIPE
    )
    try:
        assert process.stdout is not None
        line = (await process.stdout.readline()).decode()
        found = re.fullmatch(r"listening on (\S+)\n", line)
        if found is None:
            raise RuntimeError("the stub ended before it listened")
        yield Stub(found[1])
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
