import asyncio
import json
import os
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from websockets.asyncio.client import ClientConnection, connect

from tests.ports import free_port
from tests.tools.model_endpoint import ModelEndpoint
from tests.tools.tool_server_process import write_settings

TIMEOUT_SECONDS = 60
Event = dict[str, Any]


@dataclass
class AgentServer:
    """An agent server in a process of its own, whose agents have a model on loopback."""

    directory: Path
    model: ModelEndpoint
    port: int = field(default_factory=free_port)
    token: str = field(default_factory=secrets.token_urlsafe)
    programs: str | None = None
    process: asyncio.subprocess.Process | None = None

    @property
    def home(self) -> Path:
        return self.directory / "home"

    @property
    def workspace(self) -> Path:
        return self.directory / "workspace"

    @property
    def settings(self) -> Path:
        return self.directory / "tools.json"

    @property
    def environment(self) -> dict[str, str]:
        kept = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        if self.programs is not None:
            kept["PATH"] = f"{self.programs}:{kept['PATH']}"
        return kept | {"HOME": str(self.home)}

    def set(self, **envs: str) -> None:
        """Write the file of settings, with what leads the agents to the model."""
        known = {
            "ANTHROPIC_BASE_URL": self.model.url,
            "ANTHROPIC_API_KEY": "fake-key",
            "OPENAI_API_KEY": "fake-key",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        }
        write_settings(self.settings, token=self.token, envs=known | envs)

    async def start(self, *options: str) -> None:
        if not self.settings.exists():
            self.set()
        for place in (self.home, self.workspace):
            place.mkdir(exist_ok=True)
        self.process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sandbox_tools", "serve-agents", "--host", "127.0.0.1"),
            *("--port", str(self.port), "--settings", str(self.settings)),
            *("--workspace", str(self.workspace), *options),
            env=self.environment,
        )
        async with asyncio.timeout(TIMEOUT_SECONDS), httpx.AsyncClient() as client:
            while True:
                try:
                    await client.get(f"http://127.0.0.1:{self.port}/health")
                except httpx.TransportError:
                    await asyncio.sleep(0.02)
                else:
                    return

    async def stop(self) -> None:
        assert self.process is not None
        if self.process.returncode is None:
            self.process.terminate()
        await self.process.wait()

    @asynccontextmanager
    async def client(self) -> AsyncIterator["AgentClient"]:
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"ws://127.0.0.1:{self.port}/"
        async with connect(url, additional_headers=headers, max_size=None, proxy=None) as socket:
            yield AgentClient(socket)


class AgentClient:
    """A client of the agent server, as a person would write one."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    async def ask(self, **asked: Any) -> None:
        await self.socket.send(json.dumps(asked))

    async def prompt(self, prompt: str, **options: Any) -> list[Event]:
        """Ask, and wait for the result."""
        await self.ask(type="prompt", prompt=prompt, **options)
        return await self.until("result")

    async def until(self, kind: str) -> list[Event]:
        events = [await self.next()]
        while events[-1]["type"] != kind:
            events.append(await self.next())
        return events

    async def next(self) -> Event:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            event: Event = json.loads(await self.socket.recv())
        return event


@asynccontextmanager
async def started_agent_server(directory: Path, *options: str) -> AsyncIterator[AgentServer]:
    with ModelEndpoint() as model:
        server = AgentServer(directory, model)
        await server.start(*options)
        try:
            yield server
        finally:
            await server.stop()
