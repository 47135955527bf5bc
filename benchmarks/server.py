import asyncio
import os
import re
import shutil
import sys
import tempfile
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx

from benchmarks.engine import Engine
from benchmarks.stub.process import Stub
from sandbox_server.db.embedded import EmbeddedPostgres

_VAR_TMP = "/var/tmp"  # noqa: S108 - not in memory, as /tmp may be
_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Server:
    """A server for one benchmark, with a client."""

    client: httpx.AsyncClient
    pid: int
    state_dir: Path

    async def create(self) -> str:
        answer = await self.client.post("/v1/sandboxes", json={"timeout_s": 600})
        assert answer.status_code == httpx.codes.CREATED, answer.text
        sandbox_id: str = answer.json()["id"]
        return sandbox_id

    async def delete(self, sandbox_id: str) -> None:
        (await self.client.delete(f"/v1/sandboxes/{sandbox_id}")).raise_for_status()

    async def read(self, sandbox_id: str) -> None:
        (await self.client.get(f"/v1/sandboxes/{sandbox_id}")).raise_for_status()

    def cpu_seconds(self) -> float:
        """Return the CPU time of its processes without the database."""
        return sum(cpu_seconds_of(pid) for pid in _tree(self.pid))

    def resident_mb(self) -> float:
        """Return the memory of its processes without the database."""
        return sum(_resident(pid) for pid in _tree(self.pid)) / 2**20


@asynccontextmanager
async def started_server(engine: Engine | Stub, *flags: str) -> AsyncIterator[Server]:
    """Start a server with the engine's sandboxes on a free port; it is removed afterwards."""
    directory = Path(tempfile.mkdtemp(prefix="sandbox-bench-", dir=_VAR_TMP))
    directory.chmod(0o711)  # its account has to get through
    state_dir = directory / "state"
    process = await _start(state_dir, engine, *flags)
    try:
        url = await _listening_url(process)
        key = (state_dir / "admin.key").read_text().strip()
        headers = {"X-API-Key": key}
        async with httpx.AsyncClient(
            base_url=url, headers=headers, timeout=60, trust_env=False
        ) as client:
            yield Server(client, process.pid, state_dir)
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()
        EmbeddedPostgres(state_dir / "postgres").stop()
        shutil.rmtree(directory)


async def _start(state_dir: Path, engine: Engine | Stub, *flags: str) -> Process:
    provider = {
        "E2B_API_KEY": engine.api_key,
        "E2B_API_URL": engine.url,
        "E2B_SANDBOX_URL": engine.url,
        "E2B_DOMAIN": engine.url.removeprefix("http://"),
    }
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandbox_server", "serve"),
        *("--port", "0", "--state-dir", str(state_dir), *flags),
        stdout=PIPE,
        stderr=DEVNULL,
        env={**os.environ, **provider},
    )


async def _listening_url(process: Process) -> str:
    assert process.stdout is not None
    url = None
    async for line in process.stdout:
        if found := re.search(r"listening on (http://\S+)", line.decode()):
            url = found[1]
        if url is not None and line.startswith(b"  curl"):
            return url
    raise RuntimeError("the server ended before it listened")


def _tree(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(each for child in children for each in _tree(int(child)))]


def _resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_seconds_of(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
