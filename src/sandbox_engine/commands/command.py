import asyncio
import fcntl
import signal
import struct
import termios
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sandbox_engine.commands.followers import Follower, Followers
from sandbox_engine.commands.io import Drain, Input
from sandbox_engine.commands.outcome import Ended, outcome
from sandbox_engine.commands.request import CommandRecord, CommandRequest, TerminalSize
from sandbox_engine.commands.spool import Output, Stream
from sandbox_engine.keeper.held_command import HeldCommand

# A client that lost the engine reconnects within this time or gets only the newest output.
_HOLD_SECONDS = 30.0
# Output without followers is read at 100 MB/s at most: a flood would otherwise cost a whole core.
_UNHEARD_BYTES = 1 << 20
_UNHEARD_SECONDS = 0.01
# A kernel thread copies terminal output to the master with a short delay.
_TERMINAL_LINGER_SECONDS = 0.1


class InputRefused(Exception):
    """The command does not accept this input."""


class Command:
    """A process in a sandbox; its output is drained always and copied to all followers.

    The command ends when its process has ended and its outputs are closed. After a signal from the
    engine it ends with its process; with a terminal, shortly after its process.
    """

    def __init__(
        self,
        held: HeldCommand,
        record: CommandRecord,
        *,
        spool_dir: Path,
        oom_kills: Callable[[], int],
        close_stdin: Callable[[HeldCommand], None],
        on_end: Callable[["Command"], None],
    ) -> None:
        self.held = held
        self.pid = held.pid
        self.host_pid = held.host_pid
        self.request: CommandRequest = record.request
        self.ended: Ended | None = None
        self.has_expired = False
        self._record = record
        self._oom_kills = oom_kills
        self._close_stdin = close_stdin
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._signalled = False
        self._hold_until = self._loop.time() + _HOLD_SECONDS
        self._unheard_bytes = 0
        self._rest: asyncio.TimerHandle | None = None
        self._timers: list[asyncio.TimerHandle] = []
        self._followers = Followers(spool_dir)
        descriptors = held.descriptors
        writable = descriptors.get("pty", descriptors.get("stdin"))
        self._input = None if writable is None else Input(writable)
        self._drain = Drain(
            {stream: descriptors[stream] for stream in Stream if stream in descriptors},
            deliver=self._deliver,
            exhausted=self._settle,
        )
        held.ended.add_done_callback(lambda _: self._settle())
        if record.deadline is not None:
            self.kill_at(record.deadline)

    def follow(self) -> Follower:
        """Follow the command from now on; the first follower also gets the buffered output."""
        follower = self._followers.join()
        self._resume_reading()
        return follower

    async def write(self, data: bytes, *, terminal: bool) -> None:
        """Write to standard input or the terminal; returns when everything is written."""
        if terminal and self.request.terminal is None:
            raise InputRefused(
                "tty not assigned to process \u2014 input should be written to the stdin, not the tty"
            )
        if not terminal and self.request.terminal is not None:
            raise InputRefused(
                "tty assigned to process \u2014 input should be written to the pty, not the stdin"
            )
        if self._input is None:
            raise InputRefused("stdin not enabled or closed")
        await self._input.write(data)

    def close_stdin(self) -> None:
        """Close standard input; closing twice is allowed."""
        if self.request.terminal is not None:
            raise InputRefused(
                "cannot close stdin for PTY process \u2014 send Ctrl+D (0x04) instead"
            )
        if self._input is not None:
            self._input.close()
            self._input = None
            self._close_stdin(self.held)

    def resize(self, size: TerminalSize) -> None:
        """Set the size of the terminal."""
        if self.request.terminal is None:
            raise InputRefused("tty not assigned to process")
        packed = struct.pack("HHHH", size.rows, size.cols, 0, 0)
        fcntl.ioctl(self.held.descriptors["pty"], termios.TIOCSWINSZ, packed)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to the process, and stop waiting for its outputs to close."""
        self._signalled = True
        if self.held.ended.done():
            self._settle()
        elif (process := self.held.descriptors.get("process")) is not None:
            with suppress(ProcessLookupError):  # it has just ended
                signal.pidfd_send_signal(process, number)

    def kill_at(self, deadline: datetime) -> None:
        """Kill the command at this time if it is still running."""
        left = (deadline - datetime.now(UTC)).total_seconds()
        self._timers.append(self._loop.call_later(max(0.0, left), self._expire))

    def linger(self, longest: timedelta) -> None:
        """Limit how long to wait, after the process has ended, for its outputs to close."""

        def begin(_: object) -> None:
            self._timers.append(self._loop.call_later(longest.total_seconds(), self._end))

        self.held.ended.add_done_callback(begin)

    def _expire(self) -> None:
        self.has_expired = True
        self.signal(signal.SIGKILL)

    def detach(self, error: Exception) -> None:
        """Disconnect all followers; the command keeps running."""
        self._followers.dismiss(error)

    def release(self, error: Exception) -> None:
        """Stop managing the command without ending it."""
        self._stop()
        self.detach(error)

    def _deliver(self, output: Output) -> None:
        if self._followers.publish(output):
            return
        self._unheard_bytes += len(output.data)
        hold = self._hold_until - self._loop.time()
        if hold > 0 and self._followers.backlog_is_full:
            self._pause(hold)
        elif self._unheard_bytes >= _UNHEARD_BYTES:
            self._unheard_bytes = 0
            self._pause(_UNHEARD_SECONDS)

    def _pause(self, seconds: float) -> None:
        self._drain.pause()
        self._rest = self._loop.call_later(seconds, self._resume_reading)

    def _resume_reading(self) -> None:
        if self._rest is not None:
            self._rest.cancel()
            self._rest = None
            self._drain.resume()

    def _settle(self) -> None:
        if self.ended is not None or not self.held.ended.done():
            return
        if self._drain.is_exhausted or (self._signalled and self.request.terminal is None):
            self._end()
        elif self.request.terminal is not None:
            self._timers.append(self._loop.call_later(_TERMINAL_LINGER_SECONDS, self._end))

    def _end(self) -> None:
        if self.ended is not None:
            return
        status = self.held.ended.result()
        starved = (
            bool(status) and not self._signalled and self._oom_kills() > self._record.oom_kills
        )
        self.ended = outcome(status, out_of_memory=starved)
        self._drain.take_rest()
        self._stop()
        self._followers.finish(self.ended)
        self._on_end(self)

    def _stop(self) -> None:
        self._drain.stop()
        if self._input is not None:
            self._input.close()
        for timer in (*self._timers, self._rest):
            if timer is not None:
                timer.cancel()
