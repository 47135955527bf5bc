"""The display of a sandbox: its size, its picture, and one connection for the agent's input."""

import asyncio
import shutil
from pathlib import Path

from sandbox_tools.desktop.images import Picture
from sandbox_tools.desktop.rfb import DisplayUnavailable, ResizeRefused, RfbConnection, connect
from sandbox_tools.desktop.x11 import Screen, read_screen

DISPLAY = ":0"
SOCKET = Path("/tmp/.desktop/rfb")  # noqa: S108 - of the account that every program in a sandbox has
LEAST_SIDE, MOST_SIDE = 64, 8192
# At four bytes each, in the server and in each of its clients.
MOST_PIXELS = 8192 * 4320
LEAST_DPI, MOST_DPI = 48, 480
_USUAL_DPI = 96
_TOOL_SECONDS = 10
# Xvnc sends changes 60 times a second.
_QUIET_SECONDS = 0.06


class InvalidDisplay(ValueError):
    """The display cannot have that size or resolution."""


def check_size(width: int, height: int) -> None:
    """Refuse sizes before anything is allocated for them."""
    for name, side in (("width", width), ("height", height)):
        if not LEAST_SIDE <= side <= MOST_SIDE:
            raise InvalidDisplay(
                f"The {name} is {side} pixels; it must be {LEAST_SIDE} to {MOST_SIDE} pixels."
            )
    if width * height > MOST_PIXELS:
        raise InvalidDisplay(
            f"The display would have {width * height} pixels; it can have at most {MOST_PIXELS}, such as 8192 by 4320."
        )


def check_dpi(dpi: int) -> None:
    if not LEAST_DPI <= dpi <= MOST_DPI:
        raise InvalidDisplay(f"The dpi is {dpi}; it must be {LEAST_DPI} to {MOST_DPI}.")


class Display:
    """One X display with Xvnc behind it. Connections are made when they are needed, and again after Xvnc was restarted."""

    def __init__(self, name: str, socket: Path) -> None:
        self.name = name
        self.socket = socket
        self._connecting = asyncio.Lock()
        self._connection: RfbConnection | None = None

    @property
    def dpi(self) -> int:
        """Read the dots per inch, which other programs of ours may have set."""
        try:
            return int((self.socket.parent / "dpi").read_text())
        except (OSError, ValueError):
            return _USUAL_DPI

    async def close(self) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def connection(self) -> RfbConnection:
        """Return the agent's connection."""
        async with self._connecting:
            if self._connection is None or not self._connection.is_open:
                self._connection = await connect(self.socket)
            return self._connection

    async def screen(self) -> Screen:
        return await read_screen(self.name)

    async def picture(self) -> Picture:
        connection = await self.connection()
        return Picture(*await connection.capture())

    async def settle(self, at_most: float) -> None:
        """Wait until programs have drawn: until nothing changes for a moment."""
        connection = await self.connection()
        until = asyncio.get_running_loop().time() + at_most
        while (left := until - asyncio.get_running_loop().time()) > 0:
            if not await connection.wait_for_change(min(left, _QUIET_SECONDS)):
                return

    async def set_size(self, width: int, height: int, dpi: int | None = None) -> None:
        """Resize the display, with its pointer in the middle, and tell programs its dots per inch."""
        check_size(width, height)
        if dpi is not None:
            check_dpi(dpi)
        connection = await self.connection()
        try:
            await connection.resize(width, height)
        except ResizeRefused:
            raise DisplayUnavailable(
                f"The display cannot become {width} by {height} pixels."
            ) from None
        connection.send_pointer(width // 2, height // 2, 0)
        if dpi is not None and dpi != self.dpi:
            await self._tell_dpi(dpi)
            (self.socket.parent / "dpi").write_text(str(dpi))
        # The pointer has moved when Xvnc has answered a later request.
        await connection.capture()

    async def _tell_dpi(self, dpi: int) -> None:
        await _run_if_installed(
            "xrdb", "-display", self.name, "-merge", "-", given=f"Xft.dpi: {dpi}\n"
        )
        setting = ("-c", "xsettings", "-p", "/Xft/DPI", "--create", "-t", "int", "-s", str(dpi))
        await _run_if_installed("xfconf-query", *setting)


async def _run_if_installed(program: str, *arguments: str, given: str = "") -> None:
    if shutil.which(program) is None:
        return
    process = await asyncio.create_subprocess_exec(
        *(program, *arguments),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_TOOL_SECONDS):
            await process.communicate(given.encode())
    except TimeoutError:
        process.kill()
        await process.wait()
