"""A bundled template that is small enough for tests to build."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx

from sandbox_server.templates.bundled import read_bundled_templates
from tests.engine.polling import until
from tests.server.support.full_server import Outside, serving_outside

AT_START = "POST /v2/templates"
LONGEST_S = 120

_MANIFEST = """
dockerfile = "e2b.Dockerfile"
start_cmd = "sleep infinity"
ready_cmd = "true"

[templates.agent]
cpu_count = 1
memory_mb = 256
aliases = ["relay-workspace"]
args = { WITH_WORDS = "some words" }
"""
_DOCKERFILE = """
FROM e2bdev/base
ARG WITH_WORDS=none
COPY docker/sandbox/ /opt/given
COPY src/sandbox_tools/*.py /opt/tools/
"""


def write_context(directory: Path, *lines: str, given: str = "first") -> Path:
    """Write the files of the template `agent`."""
    files = {
        "templates/e2b.toml": _MANIFEST,
        "templates/e2b.Dockerfile": _DOCKERFILE + "\n".join(lines),
        "docker/sandbox/given": given,
        "docker/sandbox/within/deeper": "deep",
        "src/sandbox_tools/tool.py": "print('a tool')",
        "src/sandbox_tools/__pycache__/tool.pyc": "compiled",
        ".git/config": "nobody's business",
    }
    for path, text in files.items():
        (directory / path).parent.mkdir(parents=True, exist_ok=True)
        (directory / path).write_text(text)
    program = directory / "docker/sandbox/start.sh"
    program.write_text("#!/bin/sh\ncat /opt/given/given")
    program.chmod(0o755)
    return directory


@dataclass(frozen=True)
class Shipping:
    """A server that builds its default template."""

    outside: Outside
    api: httpx.AsyncClient

    async def create(self, *, wait: int = 60, **fields: Any) -> dict[str, Any]:
        answer = await self.api.post("/v1/sandboxes", params={"wait": wait}, json=fields)
        assert answer.status_code in (201, 202), answer.text
        told: dict[str, Any] = answer.json()
        return told

    async def told(self, sandbox_id: str) -> dict[str, Any]:
        told: dict[str, Any] = (await self.api.get(f"/v1/sandboxes/{sandbox_id}")).json()
        return told

    async def becomes(self, sandbox_id: str, state: str) -> dict[str, Any]:
        async def is_there() -> bool:
            return bool((await self.told(sandbox_id))["state"] == state)

        await until(is_there, timeout=LONGEST_S)
        return await self.told(sandbox_id)

    async def build(self) -> dict[str, Any]:
        answer = await self.api.get("/v1/templates/agent")
        assert answer.status_code == 200, answer.text
        [build] = answer.json()["builds"]
        told: dict[str, Any] = build
        return told

    async def built(self, state: str) -> dict[str, Any]:
        async def is_there() -> bool:
            return bool((await self.build())["state"] == state)

        await until(is_there, timeout=LONGEST_S)
        return await self.build()


@asynccontextmanager
async def shipping(
    database_url: str, engine: Any, *, context: Path, state_dir: Path, **settings: Any
) -> AsyncIterator[Shipping]:
    """Run a server with the bundled templates of this context."""
    settings = {"agent_template": True, **settings}
    async with (
        serving_outside(
            database_url,
            engine,
            state_dir=state_dir,
            bundled=read_bundled_templates(context),
            **settings,
        ) as outside,
        outside.api() as api,
    ):
        yield Shipping(outside, api)


def through(proxy: Any, engine: Any) -> Any:
    """Reach the engine through a proxy."""
    return SimpleNamespace(url=proxy.url, api_key=engine.api_key, port=engine.port)
