import asyncio
import json
import os
import secrets
from codecs import getincrementaldecoder
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from sandbox_tools.interpreter.environment import Changes
from sandbox_tools.interpreter.kernel import Kernel, Launch
from sandbox_tools.interpreter.output import Output, error_line, result_line, stream_line
from sandbox_tools.interpreter.process import KernelProcess

_CHUNK = 64 << 10
_MARKER_TIMEOUT_S = 1
_INTERRUPTED = 130


@dataclass
class _Cell:
    marker: bytes
    output: Output
    streams_ended: dict[str, asyncio.Event] = field(
        default_factory=lambda: {"stdout": asyncio.Event(), "stderr": asyncio.Event()}
    )


class CellKernel(Kernel):
    """A program of ours that runs cells.

    It reads requests (a marker and the code, each ended by NUL), writes output to stdout and stderr, and events to a
    pipe. It ends the output of a cell with the marker.
    """

    def __init__(self, process: KernelProcess, *, splits_lines: bool) -> None:
        self.process = process
        self._splits_lines = splits_lines
        self._cell: _Cell | None = None
        self._executions = 0
        self._reading = [
            asyncio.create_task(self._read_output(name, reader))
            for name, reader in process.streams.items()
        ]

    @classmethod
    async def start(
        cls, arguments: Sequence[str], launch: Launch, *, splits_lines: bool = False
    ) -> "CellKernel":
        """Start the program and wait until it is ready; the descriptors of its pipes are its last arguments."""
        requests, events, interrupts = os.pipe(), os.pipe(), os.pipe()
        theirs = (requests[0], events[1], interrupts[0])
        try:
            process = await KernelProcess.start(
                [*arguments, *map(str, theirs)],
                context_id=launch.context_id,
                cwd=launch.cwd,
                environment=launch.environment,
                has_output=True,
                descriptors=theirs,
            )
        except BaseException:
            for descriptor in (requests[1], events[0], interrupts[1]):
                os.close(descriptor)
            raise
        finally:
            for descriptor in theirs:
                os.close(descriptor)
        kernel = cls(process, splits_lines=splits_lines)
        await kernel._open(requests[1], events[0], interrupts[1])
        try:
            await kernel._next_event()
        except BaseException:
            await process.kill()
            kernel.close()
            raise
        return kernel

    async def execute(
        self, code: str, output: Output, *, is_silent: bool = False, changes: Changes | None = None
    ) -> None:
        assert changes is None
        if is_silent:
            output.discard()
        else:
            self._executions += 1
            await output.put({"type": "number_of_executions", "execution_count": self._executions})
        if self._requests.is_closing():
            # The pipe may be closed before the process is known to have ended.
            await asyncio.wait({self.process.ended})
            raise self.process.error()
        cell = self._cell = _Cell(secrets.token_hex(16).encode(), output)
        try:
            self._requests.write(
                cell.marker + b"\0" + code.replace("\0", "").encode(errors="replace") + b"\0"
            )
            while (event := await self._next_event())["event"] != "done":
                await _put(event, output)
            await self._wait_for_output(cell)
            status = event.get("status", 0)
            if status == _INTERRUPTED:
                await output.put(error_line("Interrupted", "The execution was interrupted."))
            elif status:
                await output.put(error_line("ExitStatus", str(status)))
        finally:
            self._cell = None

    def interrupt(self) -> None:
        self.process.interrupt()
        if not self._interrupts.is_closing():
            self._interrupts.write(b"i")

    def close(self) -> None:
        for transport in (self._requests, self._interrupts, self._events_transport):
            transport.close()
        for task in self._reading:
            task.cancel()

    async def _open(self, requests: int, events: int, interrupts: int) -> None:
        loop = asyncio.get_running_loop()
        self._events = asyncio.StreamReader(limit=_CHUNK)
        self._events_transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(self._events), os.fdopen(events, "rb", 0)
        )
        self._requests, self._interrupts = [
            (await loop.connect_write_pipe(asyncio.Protocol, os.fdopen(pipe, "wb", 0)))[0]
            for pipe in (requests, interrupts)
        ]
        self._unread = b""

    async def _next_event(self) -> dict[str, Any]:
        parts = [self._unread]
        while b"\n" not in parts[-1]:
            read = await self._events.read(_CHUNK)
            if not read:
                await asyncio.wait({self.process.ended})
                await asyncio.wait(self._reading, timeout=_MARKER_TIMEOUT_S)
                raise self.process.error()
            parts.append(read)
        line, _, self._unread = b"".join(parts).partition(b"\n")
        event: dict[str, Any] = json.loads(line)
        return event

    async def _wait_for_output(self, cell: _Cell) -> None:
        """Wait for both markers, unless the code has closed a stream."""
        ended = [asyncio.create_task(one.wait()) for one in cell.streams_ended.values()]
        while any(not task.done() for task in ended):
            before = self._read_bytes
            await asyncio.wait(ended, timeout=_MARKER_TIMEOUT_S)
            if self._read_bytes == before and not cell.output.is_full:
                break
        for task in ended:
            task.cancel()

    _read_bytes = 0

    async def _read_output(self, name: str, reader: asyncio.StreamReader) -> None:
        decoder = getincrementaldecoder("utf-8")("replace")
        held = b""
        while read := await reader.read(_CHUNK):
            self._read_bytes += len(read)
            cell = self._cell
            if cell is None:
                # Of programs in the background, after the end of the cell that started them.
                held = b""
                continue
            end = b"\0" + cell.marker + b"\0"
            text, found, rest = (held + read).partition(end)
            held = rest if found else _start_of(end, text)
            if not found:
                text = text[: len(text) - len(held)]
            await self._put_text(cell.output, name, decoder.decode(text))
            if found:
                cell.streams_ended[name].set()
                held = b""

    async def _put_text(self, output: Output, name: str, text: str) -> None:
        parts = [text]
        if self._splits_lines and len(text) > 1 and text.endswith("\n"):
            parts = [text[:-1], "\n"]
        for part in filter(None, parts):
            await output.put(stream_line(name, part))


def _start_of(marker: bytes, text: bytes) -> bytes:
    """Give the end of the text with which the marker may begin."""
    at = text.rfind(b"\0", max(0, len(text) - len(marker) + 1))
    return text[at:] if at >= 0 and marker.startswith(text[at:]) else b""


async def _put(event: dict[str, Any], output: Output) -> None:
    if event["event"] == "result":
        await output.put(result_line(event["data"], is_main=event["is_main_result"]))
    elif event["event"] == "error":
        await output.put(error_line(event["name"], event["value"], event["traceback"]))
