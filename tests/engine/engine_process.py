"""The engine as its users have it: a process of its own, started by its command."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

import httpx
from e2b import AsyncSandbox

from sandbox_engine.system.settings import Settings
from tests.listening_process import ListeningProcess

REPOSITORY = Path(__file__).parents[2]
IMAGES = Path(os.environ.get("SANDBOX_ENGINE_TEST_IMAGES", REPOSITORY / ".cache" / "images"))
STOP_TIMEOUT_S = 20


class ConnectionOptions(TypedDict):
    """What points the SDK at an engine."""

    api_key: str
    api_url: str
    sandbox_url: str


class EngineProcess(ListeningProcess):
    """One engine on a free port, with a state directory that outlives its process."""

    stop_timeout_s = STOP_TIMEOUT_S

    def __init__(self, *flags: str, port: int = 0, parent: Path | None = None) -> None:
        super().__init__()
        self.state_dir = Path(tempfile.mkdtemp(prefix="engine-", dir=parent))
        self._flags = flags
        self._port = port
        self._log = (self.state_dir / "engine.log").open("a")
        self.url = ""

    @property
    def instance(self) -> str:
        return Settings(state_dir=self.state_dir).instance

    @property
    def api_key(self) -> str:
        return (self.state_dir / "api.key").read_text().strip()

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    @property
    def log(self) -> str:
        return (self.state_dir / "engine.log").read_text()

    @property
    def options(self) -> ConnectionOptions:
        return ConnectionOptions(api_key=self.api_key, api_url=self.url, sandbox_url=self.url)

    async def ask(self, path: str) -> Any:
        """Get what its API answers there."""
        async with httpx.AsyncClient(
            base_url=self.url, headers={"X-API-Key": self.api_key}, timeout=30
        ) as client:
            return (await client.get(path)).json()

    async def state_reason(self, sandbox: AsyncSandbox) -> str:
        """Get why the sandbox is in the state that it is in."""
        reason: str = (await self.ask(f"/sandboxes/{sandbox.sandbox_id}"))["stateReason"]
        return reason

    def command(self, name: str) -> list[str]:
        paths = ["--state-dir", str(self.state_dir), "--images-dir", str(IMAGES)]
        return [
            sys.executable,
            "-m",
            "sandbox_engine",
            name,
            *paths,
            "--port",
            str(self._port),
            *("--ready-sandboxes", "0"),
            *self._flags,
        ]

    def start(self, *flags: str) -> None:
        """Start it, on the port it had before if it had one, and wait until it listens."""
        self._process = subprocess.Popen(
            [*self.command("serve"), *flags], stdout=subprocess.PIPE, stderr=self._log, text=True
        )
        self.url = self._await_address()
        self._port = self.port

    def _await_address(self) -> str:
        printed = ""
        for line in self.output:
            if found := re.search(r"listening on (https?://\S+)", line):
                return found[1]
            printed += line
        raise AssertionError(f"the engine did not start:\n{printed}{self.log}")

    async def restart(self) -> None:
        """Crash it and start it again."""
        self.kill()
        await asyncio.to_thread(self.start)

    def remove(self) -> None:
        """Stop it and leave nothing of it behind."""
        if self.is_running:
            self.stop()
        subprocess.run(self.command("reset"), check=True, stderr=self._log, timeout=120)
        self._log.close()
        shutil.rmtree(self.state_dir)


def host_pid(engine: EngineProcess, sandbox: AsyncSandbox) -> int:
    """Find the sandbox's first process as the host counts it."""
    record = engine.state_dir / "sandboxes" / sandbox.sandbox_id / "record.json"
    found = re.search(r'"pid":(\d+)', record.read_text())
    assert found
    return int(found[1])


@contextmanager
def running_engine(
    *flags: str, port: int = 0, parent: Path | None = None
) -> Iterator[EngineProcess]:
    """Run an engine of one's own, gone with all that is its when the block ends.

    Its state is in `parent`, where that is given.
    """
    engine = EngineProcess(*flags, port=port, parent=parent)
    engine.start()
    try:
        yield engine
    finally:
        engine.remove()
