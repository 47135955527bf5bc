import asyncio
import json
import os
import secrets
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from fastmcp import Client

from tests.ports import free_port

_TIMEOUT_SECONDS = 60


@dataclass(frozen=True)
class ToolServer:
    """A tool server in a process of its own, with a workspace and a file of settings."""

    process: asyncio.subprocess.Process
    url: str
    token: str
    settings: Path
    workspace: Path

    def client(self, token: str | None = None, **options: Any) -> Client[Any]:
        return Client(f"{self.url}/mcp/", auth=token or self.token, **options)

    def set(self, **settings) -> None:
        """Replace the file of settings as a sandbox's server does."""
        write_settings(self.settings, **({"token": self.token} | settings))


def write_settings(path: Path, **settings: object) -> None:
    new = path.with_suffix(".new")
    new.touch(mode=0o600)
    new.write_text(json.dumps(settings))
    new.replace(path)


@asynccontextmanager
async def started_tool_server(
    directory: Path, *, account: int | None = None, is_given: bool = True, **environment: str
) -> AsyncIterator[ToolServer]:
    """Start one in `directory`, whose home and workspace are in there as well; the latter is given, or the current directory."""
    home, workspace = directory / "home", directory / "workspace"
    for made in (home, workspace):
        made.mkdir(exist_ok=True)
    settings, token, port = directory / "tools.json", secrets.token_urlsafe(), free_port()
    write_settings(settings, token=token)
    if account is not None:
        for given in (home, workspace, settings):
            os.chown(given, account, account)
    workspace_given = ("--workspace", str(workspace)) if is_given else ()
    become = () if account is None else _become(account)
    process = await asyncio.create_subprocess_exec(
        *(*become, sys.executable, "-m", "sandbox_tools", "serve", "--host", "127.0.0.1"),
        *("--port", str(port), "--settings", str(settings), *workspace_given),
        cwd=None if is_given else workspace,
        env=os.environ | {"HOME": str(home)} | environment,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        await wait_until_healthy(url, process)
        yield ToolServer(process, url, token, settings, workspace)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


def _become(account: int) -> tuple[str, ...]:
    return ("setpriv", f"--reuid={account}", f"--regid={account}", "--clear-groups")


async def wait_until_healthy(url: str, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(_TIMEOUT_SECONDS), httpx.AsyncClient() as client:
        while True:
            assert process.returncode is None, "the tool server has ended"
            try:
                answer = await client.get(f"{url}/health")
            except httpx.ConnectError:
                await asyncio.sleep(0.02)
            else:
                assert answer.status_code == 200
                return
