import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta

import anyio
from fastmcp.exceptions import ToolError

from sandbox_tools.shell.shell import Shell
from sandbox_tools.shell.shell_directory import Recording
from sandbox_tools.shell.shell_monitor import Watch
from sandbox_tools.shell.shells import Shells
from sandbox_tools.shell.terminal_text import plain
from sandbox_tools.shell.tmux import MOST_RECORDED, recording

_TAKE = [f"{byte:02x}" for byte in b"\x1b[7770~\r"]  # the keys that hooks.bash binds, and Enter
_TAKES_WITHIN_S = 15.0
_RECORDS_WITHIN_S = 5.0
_A_LOOK_S = 1.0

Tell = Callable[[float, str], Awaitable[None]]


@dataclass(frozen=True, kw_only=True)
class Ran:
    """A command in a shell: how it ended, or with neither code nor `over` that it still runs."""

    recording: Recording
    exit_code: int | None
    over: bool  # the shell itself has ended


class Turns:
    """Has shells run commands, each one at a time."""

    def __init__(self, shells: Shells) -> None:
        self._shells = shells
        self._tmux = shells.tmux
        self._asking: set[str] = set()

    async def run(self, name: str, command: str, *, timeout: timedelta, tell: Tell) -> Ran:
        """Have a shell run a command, until it ends or its time is over; then it runs on."""
        if name in self._asking:
            raise ToolError(
                f"Another shell_run is going on in {name}. Wait for it, or open another shell."
            )
        self._asking.add(name)
        try:
            shell = await self._shells.find(name)
            _check_idle(shell)
            with Watch.of(shell.place.wake, shell.pane.pid) as watch:
                number, recorded = await self._hand_over(shell, command, watch)
                try:
                    return await self._wait(shell, number, recorded, watch, timeout, tell)
                except asyncio.CancelledError:
                    with anyio.CancelScope(shield=True):
                        await self._tmux.run(("send-keys", "-t", shell.pane.id, "C-c"))
                    raise
        finally:
            self._asking.discard(name)

    async def _hand_over(self, shell: Shell, command: str, watch: Watch) -> tuple[int, Recording]:
        place, pane = shell.place, shell.pane.id
        number = place.last() + 1
        recorded = place.request(number, command)
        await self._tmux.run(
            ("copy-mode", "-q", "-t", pane),  # in which a person may be, and keys would go to
            recording(pane, recorded.path),
            ("send-keys", "-t", pane, "-H", *_TAKE),
        )
        end = asyncio.get_running_loop().time() + _TAKES_WITHIN_S
        while not place.has_begun(number) and not watch.ended:
            if asyncio.get_running_loop().time() > end:
                place.withdraw()
                place.forget(number)
                raise ToolError(
                    f"The shell {shell.name} does not take the command: it is not at its prompt. Look at it with"
                    " shell_view; interrupt what runs with shell_write and the keys C-c, or open another shell."
                )
            await watch.changed(_A_LOOK_S)
        return number, recorded

    async def _wait(
        self,
        shell: Shell,
        number: int,
        recorded: Recording,
        watch: Watch,
        timeout: timedelta,
        tell: Tell,
    ) -> Ran:
        now = asyncio.get_running_loop().time
        start = now()
        while (code := shell.place.exit_code(number)) is None and not watch.ended:
            left = timeout.total_seconds() - (now() - start)
            if left <= 0:
                return Ran(recording=recorded, exit_code=None, over=False)
            await watch.changed(min(_A_LOOK_S, left))
            await tell(now() - start, last_line(recorded))
        if code is None:
            return Ran(recording=recorded, exit_code=await self._code_of_ended(shell), over=True)
        await _until_complete(recorded)
        return Ran(recording=recorded, exit_code=code, over=False)

    async def _code_of_ended(self, shell: Shell) -> int | None:
        """Ask tmux, which may see the end of a process later than others."""
        for _ in range(40):
            panes = [pane for pane in await self._tmux.panes() if pane.id == shell.pane.id]
            if not panes or panes[0].exit_code is not None:
                return panes[0].exit_code if panes else None
            await asyncio.sleep(0.05)
        return None


def _check_idle(shell: Shell) -> None:
    if shell.background is not None:
        raise ToolError(
            f"{shell.name} is a command in the background, which runs no others. Open a shell with shell_open."
        )
    if shell.pane.exit_code is not None:
        raise ToolError(f"The shell {shell.name} has ended. Open it anew with shell_open.")
    if shell.is_running():
        running = shell.place.running()
        what = shell.place.command(running) if running is not None else shell.pane.program
        raise ToolError(
            f"The shell {shell.name} still runs: {what[:200]}\nWait with shell_view and wait_s, give it input with"
            " shell_write, interrupt it with shell_write and the keys C-c, or open another shell."
        )


async def _until_complete(recorded: Recording) -> None:
    """Wait for the last of the output: it takes another way than the news of the end."""
    end = asyncio.get_running_loop().time() + _RECORDS_WITHIN_S
    while not recorded.is_complete() and recorded.size < MOST_RECORDED:
        if asyncio.get_running_loop().time() > end:
            return
        await asyncio.sleep(0.01)


def last_line(recorded: Recording, at_most: int = 200) -> str:
    _, tail, between = recorded.ends(head=0, tail=4096)
    if not between:
        tail = recorded.ends(head=4096, tail=0)[0]
    lines = [line.strip() for line in plain(tail).split("\n") if line.strip()]
    return lines[-1][-at_most:] if lines else ""
