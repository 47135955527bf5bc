import argparse
import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

from sandbox_tools.desktop.display import DISPLAY, SOCKET, Display, InvalidDisplay
from sandbox_tools.desktop.rfb import DisplayUnavailable


def main(arguments: Sequence[str]) -> int:
    """Resize the display; needs no token, unlike the service."""
    parser = argparse.ArgumentParser(prog="sandbox-tools resize-desktop")
    parser.add_argument("width", type=int)
    parser.add_argument("height", type=int)
    parser.add_argument("--dpi", type=int)
    parser.add_argument("--display", default=DISPLAY)
    parser.add_argument("--rfb", type=Path, default=SOCKET)
    options = parser.parse_args(arguments)
    display = Display(options.display, options.rfb)
    try:
        asyncio.run(_resize(display, options.width, options.height, options.dpi))
    except (InvalidDisplay, DisplayUnavailable) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


async def _resize(display: Display, width: int, height: int, dpi: int | None) -> None:
    screen = await display.screen()
    if (screen.width, screen.height, dpi or display.dpi) != (width, height, display.dpi):
        await display.set_size(width, height, dpi)
    await display.close()
