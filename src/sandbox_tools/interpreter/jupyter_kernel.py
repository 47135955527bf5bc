import asyncio
import hmac
import json
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import zmq
from jupyter_client.connect import write_connection_file

from sandbox_tools.interpreter.environment import Changes
from sandbox_tools.interpreter.kernel import Kernel, Launch
from sandbox_tools.interpreter.output import (
    Line,
    Output,
    error_line,
    result_line,
    stream_line,
)
from sandbox_tools.interpreter.process import KernelProcess

_CHANNELS = {"shell": 1, "iopub": 2, "stdin": 3, "control": 4, "hb": 5}
_DELIMITER = b"<IDS|MSG>"
_VERSION = "5.3"
_RECONNECT_MS = 10
_MESSAGES = 64
_LARGEST_MESSAGE = 64 << 20
_IN_A_ROW = 16
"""Messages that are read before others have their turn: a flood must not hold up the server."""
_ASK_AGAIN_S = 0.5
_AFTER_END_S = 0.2


class JupyterKernel(Kernel):
    """A kernel that speaks Jupyter's protocol over sockets in a directory of its own.

    Messages are signed, because kernels require it. Signatures of the kernel are not checked: a process that can listen in
    the directory can also read the key.
    """

    def __init__(
        self,
        process: KernelProcess,
        key: bytes,
        address: str,
        *,
        uses_messages: bool,
        takes_variables: bool,
    ) -> None:
        self.process = process
        self.takes_variables = takes_variables
        self._signature = hmac.new(key, digestmod="sha256")
        self._session = secrets.token_hex(16)
        self._uses_messages = uses_messages
        self._shell = _connect(zmq.DEALER, f"{address}-{_CHANNELS['shell']}")
        self._control = _connect(zmq.DEALER, f"{address}-{_CHANNELS['control']}")
        self._iopub = _connect(zmq.SUB, f"{address}-{_CHANNELS['iopub']}")
        self._received = 0
        self._waiting: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._iopub.FD, self._on_readable)
        process.ended.add_done_callback(lambda _: self._wake())

    @classmethod
    async def start(
        cls,
        arguments: Sequence[str],
        launch: Launch,
        *,
        uses_messages: bool = False,
        takes_variables: bool = False,
    ) -> "JupyterKernel":
        """Start a kernel and wait until it responds; `{connection_file}` is replaced in the arguments."""
        # Absolute, because the kernel has another working directory; paths of sockets are limited to 107 bytes.
        address = launch.directory / f"kernel-{secrets.token_hex(4)}"
        file, key = f"{address}.json", secrets.token_hex(32).encode()
        ports = {f"{name}_port": number for name, number in _CHANNELS.items()}
        write_connection_file(file, ip=str(address), transport="ipc", key=key, **ports)  # type: ignore[arg-type]
        process = await KernelProcess.start(
            [argument.replace("{connection_file}", file) for argument in arguments],
            context_id=launch.context_id,
            cwd=launch.cwd,
            environment=launch.environment,
        )
        kernel = cls(
            process,
            key,
            f"ipc://{address}",
            uses_messages=uses_messages,
            takes_variables=takes_variables,
        )
        try:
            await kernel._wait_until_ready()
        except BaseException:
            await process.kill()
            kernel.close()
            raise
        return kernel

    async def execute(
        self, code: str, output: Output, *, is_silent: bool = False, changes: Changes | None = None
    ) -> None:
        content = {
            "code": code,
            "silent": is_silent,
            "store_history": not is_silent,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        if changes is not None:
            # Not a part of Jupyter's protocol: see programs/python_kernel.py.
            content["environment"] = {"before": changes.before, "after": changes.after}
        request = self._send(self._shell, "execute_request", content)
        has_failed = False
        while True:
            kind, parent, body = await self._receive()
            if request not in parent:
                continue
            content = json.loads(body)
            if kind == "status" and content["execution_state"] == "idle":
                break
            if kind == "error":
                if has_failed:
                    continue
                has_failed = True
            line = _line(kind, content)
            if line is not None:
                await output.put(line)
        self._drop_replies()

    def interrupt(self) -> None:
        if self._uses_messages:
            self._send(self._control, "interrupt_request", {})
        else:
            self.process.interrupt()

    def close(self) -> None:
        if self._iopub.closed:
            return
        self._loop.remove_reader(self._iopub.FD)
        if self._waiting is not None:
            self._waiting.cancel()
        for socket in (self._shell, self._control, self._iopub):
            socket.close(linger=0)

    async def _wait_until_ready(self) -> None:
        """Ask until the kernel's answer has been published: until then, output may be lost."""
        while True:
            self._send(self._shell, "kernel_info_request", {})
            try:
                async with asyncio.timeout(_ASK_AGAIN_S):
                    while (await self._receive())[0] != "status":
                        pass
                break
            except TimeoutError:
                continue
        self._drop_replies()

    def _send(self, socket: zmq.Socket[bytes], kind: str, content: Mapping[str, Any]) -> bytes:
        """Send a message; its identifier is part of the messages that answer it."""
        identifier = secrets.token_hex(16)
        header = {
            "msg_id": identifier,
            "msg_type": kind,
            "session": self._session,
            "username": "",
            "date": datetime.now(UTC).isoformat(),  # noqa: TID251 - the sandbox has no other clock
            "version": _VERSION,
        }
        frames = [json.dumps(header).encode(), b"{}", b"{}", json.dumps(content).encode()]
        signature = self._signature.copy()
        for frame in frames:
            signature.update(frame)
        socket.send_multipart([_DELIMITER, signature.hexdigest().encode(), *frames])
        return identifier.encode()

    async def _receive(self) -> tuple[str, bytes, bytes]:
        """Receive what the kernel publishes: kind, encoded parent and content; after its end first what it had sent."""
        if self._received == _IN_A_ROW:
            self._received = 0
            await asyncio.sleep(0)
        self._received += 1
        while True:
            with suppress(zmq.Again):
                return _parts(self._iopub.recv_multipart(zmq.NOBLOCK))
            self._received = 0
            has_ended = self.process.ended.done()
            self._waiting = self._loop.create_future()
            await asyncio.wait({self._waiting}, timeout=_AFTER_END_S if has_ended else None)
            if has_ended and not self._waiting.done():
                raise self.process.error()
            self._waiting.result()

    def _on_readable(self) -> None:
        # Also tells the socket that the event was seen; otherwise the loop would not sleep.
        if int(self._iopub.get(zmq.EVENTS)) & zmq.POLLIN:
            self._wake()

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _drop_replies(self) -> None:
        with suppress(zmq.Again):
            while True:
                self._shell.recv_multipart(zmq.NOBLOCK)


def _connect(kind: int, address: str) -> zmq.Socket[bytes]:
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(kind)
    socket.linger = 0
    socket.rcvhwm = _MESSAGES
    socket.reconnect_ivl = _RECONNECT_MS
    if kind == zmq.SUB:
        socket.subscribe(b"")
    socket.connect(address)
    return socket


def _parts(frames: Sequence[bytes]) -> tuple[str, bytes, bytes]:
    at = frames.index(_DELIMITER)
    header, parent, _, content = frames[at + 2 : at + 6]
    kind: str = json.loads(header)["msg_type"]
    if len(content) > _LARGEST_MESSAGE:
        # It would not fit into memory when decoded.
        notice = f"An output of {len(content) >> 20} MB was dropped.\n"
        return "stream", parent, json.dumps({"name": "stderr", "text": notice}).encode()
    return kind, parent, content


def _line(kind: str, content: Mapping[str, Any]) -> Line | None:
    match kind:
        case "execute_input":
            return {
                "type": "number_of_executions",
                "execution_count": content["execution_count"],
            }
        case "stream":
            return stream_line(content["name"], content["text"])
        case "display_data" | "execute_result":
            return result_line(content["data"], is_main=kind == "execute_result")
        case "error":
            traceback = "".join(content["traceback"])
            return error_line(content["ename"], content["evalue"], traceback)
    return None
