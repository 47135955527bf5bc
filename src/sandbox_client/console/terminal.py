"""Connects this terminal to a terminal in a sandbox."""

import asyncio
import os
import signal
import sys
import termios
import tty
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from sandbox_client import AsyncTerminal
from sandbox_client.errors import StreamBroken
from sandbox_client.events import (
    SandboxStateChanged,
    TerminalEvent,
    TerminalExit,
    TerminalGap,
    TerminalProblem,
)
from sandbox_client.models import SandboxState

DETACHED = None  # the result of a session ended by `~.`: the terminal keeps running
_STDIN, _STDOUT = 0, 1
_READ = 64 * 1024
_NOTES = {
    SandboxState.PAUSED: "Sandbox paused. Type to resume it.",
    SandboxState.RESUMING: "Sandbox is resuming.",
    SandboxState.STOPPED: "Sandbox was deleted.",
    SandboxState.FAILED: "Sandbox failed.",
}


_ESCAPE = ord("~")
_LEAVE = ord(".")
_LINE_ENDS = b"\r\n"


def is_terminal() -> bool:
    """Whether stdin and stdout are a terminal."""
    return os.isatty(_STDIN) and os.isatty(_STDOUT)


def terminal_size() -> tuple[int, int]:
    """Return columns and rows within the limits of sandbox terminals."""
    size = os.get_terminal_size(_STDOUT)
    return min(max(size.columns, 1), 1000), min(max(size.lines, 1), 1000)


async def show(terminal: AsyncTerminal) -> int | None:
    """Show a terminal until its program ends and return the exit code, or DETACHED after `~.`."""
    with _raw():
        return await _TerminalSession(terminal).run()


@contextmanager
def _raw() -> Iterator[None]:
    before = termios.tcgetattr(_STDIN)
    tty.setraw(_STDIN, termios.TCSADRAIN)  # what was typed so far belongs to the shell
    try:
        yield
    finally:
        termios.tcsetattr(_STDIN, termios.TCSADRAIN, before)


class Escape:
    """Detects `~.` at the start of a line, as ssh does; `~~` there sends one `~`."""

    def __init__(self) -> None:
        self.is_complete = False
        self._is_at_start = True
        self._is_held = False

    def feed(self, typed: bytes) -> bytes:
        """Return the bytes to send; nothing after the escape."""
        passed_on = bytearray()
        for byte in typed:
            if self._is_held:
                self._is_held = False
                if byte == _LEAVE:
                    self.is_complete = True
                    break
                if byte != _ESCAPE:
                    passed_on.append(_ESCAPE)
            elif byte == _ESCAPE and self._is_at_start:
                self._is_held = True
                continue
            passed_on.append(byte)
            self._is_at_start = byte in _LINE_ENDS
        return bytes(passed_on)


class _TerminalSession:
    def __init__(self, terminal: AsyncTerminal) -> None:
        self._terminal = terminal
        self._escape = Escape()
        self._size: tuple[int, int] | None = None
        # One queue, so that input typed after a resize does not overtake it.
        self._typed: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._queue_resize()

    async def run(self) -> int | None:
        loop = asyncio.get_running_loop()
        loop.add_reader(_STDIN, self._read)
        loop.add_signal_handler(signal.SIGWINCH, self._queue_resize)
        try:
            return await self._until_one_ends()
        finally:
            loop.remove_signal_handler(signal.SIGWINCH)
            loop.remove_reader(_STDIN)

    async def _until_one_ends(self) -> int | None:
        shown = asyncio.create_task(self._show())
        passed_on = asyncio.create_task(self._pass_on())
        done, _ = await asyncio.wait([shown, passed_on], return_when=asyncio.FIRST_COMPLETED)
        shown.cancel()
        passed_on.cancel()
        await asyncio.gather(shown, passed_on, return_exceptions=True)
        if passed_on in done:
            passed_on.result()
        return shown.result() if shown in done else DETACHED

    def _read(self) -> None:
        self._typed.put_nowait(os.read(_STDIN, _READ))

    def _queue_resize(self) -> None:
        self._typed.put_nowait(None)

    async def _pass_on(self) -> None:
        while (typed := await self._typed.get()) != b"":
            await self._fit()
            passed_on = self._escape.feed(typed or b"")
            if passed_on:
                async with _noted_if_lost():
                    await self._terminal.send(passed_on)
            if self._escape.is_complete:
                return

    async def _fit(self) -> None:
        """Send the size if it changed; the resize signal may arrive after later input."""
        if self._size != (size := terminal_size()):
            self._size = size
            async with _noted_if_lost():
                await self._terminal.resize(*size)

    async def _show(self) -> int:
        async for event in self._terminal:
            if isinstance(event, bytes):
                await asyncio.to_thread(_write, event)
            elif isinstance(event, TerminalExit):
                return 1 if event.exit_code is None else event.exit_code
            elif note := _note(event):
                await asyncio.to_thread(_write_note, note)
        return 1


@asynccontextmanager
async def _noted_if_lost() -> AsyncIterator[None]:
    """Continue when only the last input was lost; the terminal reconnects by itself."""
    try:
        yield
    except StreamBroken as error:
        await asyncio.to_thread(_write_note, str(error))


def _note(event: TerminalEvent) -> str | None:
    match event:
        case SandboxStateChanged(state=state):
            return _NOTES.get(state)
        case TerminalProblem():
            return f"{event.title}: {event.detail}"
        case TerminalGap(size=size):
            return (
                f"{size} bytes of output were discarded." if size else "Output may be missing here."
            )
    return None


def _write_note(note: str) -> None:
    _write(f"\r\n[{note}]\r\n".encode())


def _write(content: bytes) -> None:
    sys.stdout.buffer.write(content)
    sys.stdout.buffer.flush()
