import asyncio
import os
import secrets
import shutil
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import imageio_ffmpeg
import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.ports import free_port
from tests.tools.tool_server_process import write_settings

TIMEOUT_SECONDS = 60


@dataclass
class DesktopProcess:
    """A desktop service in a process of its own, in front of an Xvnc of its own."""

    display: str
    rfb: Path
    url: str
    token: str

    @asynccontextmanager
    async def connected(self) -> AsyncIterator["Desktop"]:
        headers = {"Authorization": f"Bearer {self.token}"}
        async with httpx.AsyncClient(
            base_url=self.url, headers=headers, timeout=TIMEOUT_SECONDS
        ) as client:
            yield Desktop(self.display, self.rfb, self.url, self.token, client)


@dataclass
class Desktop(DesktopProcess):
    """The service with a client."""

    client: httpx.AsyncClient

    async def act(self, action: str, **arguments: object) -> dict[str, Any]:
        answer = await self.client.post("/actions", json={"action": action, **arguments})
        assert answer.status_code == 200, answer.text
        acted: dict[str, Any] = answer.json()
        return acted

    @asynccontextmanager
    async def viewer(self, mode: str, **options: Any) -> AsyncIterator[ClientConnection]:
        headers = {"Authorization": f"Bearer {self.token}"}
        url = f"{self.url.replace('http', 'ws')}/vnc?mode={mode}"
        async with connect(
            url, additional_headers=headers, max_size=None, proxy=None, close_timeout=0.2, **options
        ) as socket:
            yield socket

    async def ask_x(self, *command: str) -> str:
        """Run a program of X on the display, and return what it prints."""
        process = await asyncio.create_subprocess_exec(
            *command,
            env=os.environ | {"DISPLAY": self.display},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await process.communicate()
        return printed.decode()

    async def cursor(self) -> tuple[int, int]:
        """Where the pointer is, as xdotool sees it."""
        x, y = (await self.ask_x("xdotool", "getmouselocation")).split()[:2]
        return int(x.removeprefix("x:")), int(y.removeprefix("y:"))


@asynccontextmanager
async def started_xvnc(
    directory: Path, geometry: str = "1024x768"
) -> AsyncIterator[tuple[str, Path]]:
    """Start an X server with a free number, and tell that and its socket."""
    if shutil.which("Xvnc") is None or shutil.which("xdotool") is None:
        pytest.skip("Xvnc and xdotool are not installed")
    rfb = directory / "rfb"
    read, write = os.pipe()
    process = await asyncio.create_subprocess_exec(
        *("Xvnc", "-displayfd", str(write), "-geometry", geometry, "-depth", "24", "-ac", "-retro"),
        *("-rfbunixpath", str(rfb), "-rfbport", "-1", "-SecurityTypes", "None", "-AlwaysShared"),
        pass_fds=(write,),
        stderr=asyncio.subprocess.DEVNULL,
    )
    os.close(write)
    try:
        with os.fdopen(read, "rb") as said:
            number = await asyncio.wait_for(asyncio.to_thread(said.readline), TIMEOUT_SECONDS)
        yield f":{int(number)}", rfb
    finally:
        process.terminate()
        await process.wait()


@asynccontextmanager
async def started_desktop(directory: Path, *options: str) -> AsyncIterator[DesktopProcess]:
    directory.mkdir(exist_ok=True)
    settings, token, port = directory / "tools.json", secrets.token_urlsafe(), free_port()
    write_settings(settings, token=token)
    url = f"http://127.0.0.1:{port}"
    async with started_xvnc(directory) as (display, rfb):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sandbox_tools", "serve-desktop", "--host", "127.0.0.1"),
            *("--port", str(port), "--settings", str(settings), "--display", display),
            *("--rfb", str(rfb), *options),
            env=os.environ
            | {"HOME": str(directory), "PATH": f"{_add_ffmpeg(directory)}:{os.environ['PATH']}"},
        )
        try:
            async with httpx.AsyncClient(base_url=url) as client:
                await _wait_until_healthy(client, process)
            yield DesktopProcess(display, rfb, url, token)
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


def _add_ffmpeg(directory: Path) -> Path:
    """Make a directory of programs with the ffmpeg that the server has."""
    programs = directory / "programs"
    programs.mkdir(exist_ok=True)
    if not (programs / "ffmpeg").exists():
        (programs / "ffmpeg").symlink_to(imageio_ffmpeg.get_ffmpeg_exe())
    return programs


async def _wait_until_healthy(
    client: httpx.AsyncClient, process: asyncio.subprocess.Process
) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            assert process.returncode is None, "the desktop service has ended"
            try:
                if (await client.get("/health")).status_code == 200:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.02)
