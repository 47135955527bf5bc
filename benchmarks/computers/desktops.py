import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from statistics import median, quantiles
from time import perf_counter
from typing import Any

import httpx
from e2b_desktop import Sandbox as Desktop
from websockets.asyncio.client import ClientConnection, connect

from benchmarks.computers.sandboxes import create, memory, sandbox
from benchmarks.engine import Engine
from benchmarks.report import Figure
from benchmarks.server import Server
from benchmarks.timing import timed

_CREATES = 7
_KEYS = 60
_MOST_FIRST_MS = 500
_MOST_KEY_MS = 80
_BETWEEN_KEYS_S = 0.12
_LETTER = ord("x")
# The programs behind our own of the same names, as e2b-desktop starts them, on a display and a session bus of their own.
_STOCK = """
Xvfb=/usr/bin/Xvfb; export DISPLAY=:9
$Xvfb :9 -ac -screen 0 1024x768x24 -retro -dpi 96 -nolisten tcp -nolisten unix >/dev/null 2>&1 &
until xdpyinfo -display :9 >/dev/null 2>&1; do sleep 0.5; done
env -u SESSION_MANAGER dbus-run-session /usr/bin/startxfce4 >/dev/null 2>&1 &
for program in xfce4-session xfwm4 xfdesktop; do
    until [ "$(pgrep -c -x $program)" -ge 2 ]; do sleep 0.1; done
done
"""
_TERMINAL = """
DISPLAY=:0 setsid xfce4-terminal --command=cat --maximize >/dev/null 2>&1 &
DISPLAY=:0 timeout 60 xdotool search --sync --onlyvisible --class xfce4-terminal windowactivate --sync
"""


async def desktops(engine: Engine, server: Server) -> AsyncIterator[Figure]:
    """Measure desktops from the create to the first picture, through the SDK, and from a key to its pixels."""
    yield await _sdk_create(engine)
    firsts = []
    for _ in range(_CREATES):
        await engine.wait_ready()
        elapsed, created = await timed(_create_and_look(server))
        firsts.append(elapsed)
        await server.delete(created["id"])
    title = "desktop: warm create + first screenshot, p50"
    yield Figure(title, median(firsts), "ms", target=_MOST_FIRST_MS)
    async with sandbox(server, "desktop") as created:
        yield await memory(server, created["id"], "desktop")
        keys = await _keys_to_pixels(server, created["id"])
        title = "desktop: key to pixels by the server, p95"
        yield Figure(title, quantiles(keys, n=20)[-1], "ms", target=_MOST_KEY_MS)
        yield Figure("the same, p50", median(keys), "ms")


async def _sdk_create(engine: Engine) -> Figure:
    """Compare the unmodified SDK's create with the stock programs, started on demand after the same create."""
    ours, stock = [], []
    options: Any = {
        "api_key": engine.api_key,
        "api_url": engine.url,
        "sandbox_url": engine.url,
        "timeout": 600,
    }
    for _ in range(_CREATES):
        await engine.wait_ready()
        elapsed, desktop = await timed(asyncio.to_thread(partial(Desktop.create, **options)))
        ours.append(elapsed)
        started, _ = await timed(asyncio.to_thread(partial(desktop.commands.run, _STOCK)))
        stock.append(elapsed + started)
        await asyncio.to_thread(desktop.kill)
    title = "desktop: e2b-desktop's create / stock programs"
    return Figure(title, median(ours), "ms", target=_MOST_FIRST_MS / 3000, floor=median(stock))


async def _create_and_look(server: Server) -> dict[str, Any]:
    created = await create(server, "desktop")
    path = f"/v1/sandboxes/{created['id']}/desktop/screenshot"
    (await server.client.get(path)).raise_for_status()
    return created


async def _keys_to_pixels(server: Server, sandbox_id: str) -> list[float]:
    """Type into a terminal as a person who took control; the milliseconds until each letter is seen."""
    path = f"/v1/sandboxes/{sandbox_id}"
    ran = await server.client.post(f"{path}/commands", params={"wait": 60}, json={"cmd": _TERMINAL})
    assert ran.json()["exit_code"] == 0, ran.text
    async with _in_control(server, path) as socket:
        viewer = _Viewer(socket)
        await viewer.shake_hands()
        times = []
        for _ in range(_KEYS):
            await viewer.drain()
            began = perf_counter()
            await viewer.press(_LETTER)
            await viewer.wait_for_pixels()
            times.append((perf_counter() - began) * 1000)
        return times


@asynccontextmanager
async def _in_control(server: Server, path: str) -> AsyncIterator[ClientConnection]:
    made = await server.client.post(f"{path}/desktop/links", json={"mode": "control"})
    page, _, ticket = made.raise_for_status().json()["url"].partition("?")
    # The ticket is the only credential: its path refuses API keys.
    async with httpx.AsyncClient() as visitor:
        taken = await visitor.post(f"{page}/control?{ticket}", json={"holder": "person"})
        taken.raise_for_status()
    url = f"{page.replace('http', 'ws', 1)}/vnc?mode=control&{ticket}"
    async with connect(url, max_size=None, proxy=None) as socket:
        yield socket


class _Viewer:
    """A client of RFB that asks for changes as noVNC does, with raw pixels."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._buffer = b""
        self._size = (0, 0)

    async def shake_hands(self) -> None:
        version = await self._read(12)
        await self._socket.send(version)
        await self._read((await self._read(1))[0])
        await self._socket.send(b"\1")
        await self._read(4)
        await self._socket.send(b"\1")
        start = await self._read(24)
        self._size = struct.unpack_from(">HH", start)
        await self._read(struct.unpack_from(">I", start, 20)[0])
        await self._ask(incremental=False)
        await self.wait_for_pixels()

    async def press(self, keysym: int) -> None:
        for is_down in (True, False):
            await self._socket.send(struct.pack(">BBxxI", 4, is_down, keysym))

    async def wait_for_pixels(self) -> None:
        """Read an update that has pixels, and ask for the next."""
        while True:
            pixels = await self._update()
            await self._ask(incremental=True)
            if pixels:
                return

    async def drain(self) -> None:
        """Read what else has changed, until nothing does for a while."""
        while True:
            try:
                async with asyncio.timeout(_BETWEEN_KEYS_S):
                    self._buffer += await self._socket.recv(decode=False)
            except TimeoutError:
                return
            await self.wait_for_pixels()

    async def _ask(self, *, incremental: bool) -> None:
        await self._socket.send(struct.pack(">BBHHHH", 3, incremental, 0, 0, *self._size))

    async def _update(self) -> int:
        """Read an update; returns how many pixels it has."""
        _, count = struct.unpack(">BxH", await self._read(4))
        pixels = 0
        for _ in range(count):
            _, _, width, height, _ = struct.unpack(">HHHHi", await self._read(12))
            await self._read(4 * width * height)
            pixels += width * height
        return pixels

    async def _read(self, length: int) -> bytes:
        while len(self._buffer) < length:
            self._buffer += await self._socket.recv(decode=False)
        taken, self._buffer = self._buffer[:length], self._buffer[length:]
        return taken
