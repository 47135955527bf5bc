import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

_TIMEOUT_SECONDS = 60


class EventWindow:
    """A window over the whole display that prints each event it receives: xev."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process
        self.printed = ""

    async def read_until(self, is_there: Callable[[str], object]) -> str:
        """Read what xev prints until it satisfies the condition."""
        assert self._process.stdout is not None
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            while not is_there(self.printed):
                chunk = await self._process.stdout.read(65536)
                assert chunk, f"xev has ended: {self.printed[-2000:]}"
                self.printed += chunk.decode()
        return self.printed

    def clear(self) -> None:
        self.printed = ""

    @property
    def text(self) -> str:
        """What the pressed keys have typed."""
        presses = re.findall(
            r"KeyPress event.*?XmbLookupString gives (.*?)\n", self.printed, re.DOTALL
        )
        typed = (re.fullmatch(r"\d+ bytes: \(([0-9a-f ]*)\) .*", press) for press in presses)
        return "".join(bytes.fromhex(match[1]).decode() for match in typed if match)

    def events(self) -> list[str]:
        """List presses and releases of buttons and keys, such as `+1`, `-1`, `+Control_L`."""
        return [
            f"{'+' if kind.endswith('Press') else '-'}{button or key}"
            for kind, button, key in re.findall(
                r"(ButtonPress|ButtonRelease|KeyPress|KeyRelease) event.*?(?:button (\d+)|keysym 0x\w+, (\w+))",
                self.printed,
                re.DOTALL,
            )
        ]


@asynccontextmanager
async def opened_event_window(display: str) -> AsyncIterator[EventWindow]:
    process = await asyncio.create_subprocess_exec(
        *(
            "xev",
            "-geometry",
            "1024x768+0+0",
            "-event",
            "keyboard",
            "-event",
            "button",
            "-event",
            "expose",
        ),
        env=os.environ | {"DISPLAY": display, "LC_ALL": "C.UTF-8"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    window = EventWindow(process)
    try:
        await window.read_until(lambda printed: "Expose event" in printed)
        window.clear()
        yield window
    finally:
        process.kill()
        await process.wait()
