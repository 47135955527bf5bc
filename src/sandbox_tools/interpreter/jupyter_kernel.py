import asyncio
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

import zmq
import zmq.asyncio
from jupyter_client.connect import write_connection_file
from jupyter_client.session import Session

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
_RECONNECT_MS = 10
_MESSAGES = 64
_LARGEST_MESSAGE = 64 << 20
_ASK_AGAIN_S = 0.5
_AFTER_END_S = 0.2

Message = dict[str, Any]


class JupyterKernel(Kernel):
    """A kernel that speaks Jupyter's protocol over sockets in a directory of its own."""

    def __init__(
        self, process: KernelProcess, session: Session, address: str, *, uses_messages: bool
    ) -> None:
        self.process = process
        self._session = session
        self._uses_messages = uses_messages
        self._context = zmq.asyncio.Context.instance()
        self._shell = self._connect(zmq.DEALER, f"{address}-{_CHANNELS['shell']}")
        self._control = self._connect(zmq.DEALER, f"{address}-{_CHANNELS['control']}")
        self._iopub = self._connect(zmq.SUB, f"{address}-{_CHANNELS['iopub']}")
        self._receiving: asyncio.Future[list[bytes]] | None = None

    @classmethod
    async def start(
        cls, arguments: Sequence[str], launch: Launch, *, uses_messages: bool = False
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
        kernel = cls(process, Session(key=key), f"ipc://{address}", uses_messages=uses_messages)
        try:
            await kernel._wait_until_ready()
        except BaseException:
            await process.kill()
            kernel.close()
            raise
        return kernel

    async def execute(self, code: str, output: Output, *, is_silent: bool = False) -> None:
        content = {
            "code": code,
            "silent": is_silent,
            "store_history": not is_silent,
            "user_expressions": {},
            "allow_stdin": False,
            "stop_on_error": False,
        }
        request = await self._send(self._shell, "execute_request", content)
        has_failed = False
        while True:
            message = await self._receive()
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["header"]["msg_type"], message["content"]
            if kind == "status" and content["execution_state"] == "idle":
                break
            if kind == "error":
                if has_failed:
                    continue
                has_failed = True
            line = _line(kind, content)
            if line is not None:
                await output.put(line)
        await self._drop_replies()

    def interrupt(self) -> None:
        if self._uses_messages:
            message = self._session.msg("interrupt_request", {})
            self._interrupting = asyncio.ensure_future(
                self._control.send_multipart(self._session.serialize(message))
            )
        else:
            self.process.interrupt()

    def close(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
        for socket in (self._shell, self._control, self._iopub):
            socket.close(linger=0)

    def _connect(self, kind: int, address: str) -> zmq.asyncio.Socket:
        socket = self._context.socket(kind)
        socket.linger = 0
        socket.rcvhwm = _MESSAGES
        socket.reconnect_ivl = _RECONNECT_MS
        if kind == zmq.SUB:
            socket.subscribe(b"")
        socket.connect(address)
        return socket

    async def _wait_until_ready(self) -> None:
        """Ask until the kernel's answer has been published: until then, output may be lost."""
        while True:
            await self._send(self._shell, "kernel_info_request", {})
            try:
                async with asyncio.timeout(_ASK_AGAIN_S):
                    while (await self._receive())["header"]["msg_type"] != "status":
                        pass
                break
            except TimeoutError:
                continue
        await self._drop_replies()

    async def _send(self, socket: zmq.asyncio.Socket, kind: str, content: Message) -> str:
        message = self._session.msg(kind, content)
        await socket.send_multipart(self._session.serialize(message))
        identifier: str = message["header"]["msg_id"]
        return identifier

    async def _receive(self) -> Message:
        """Receive what the kernel publishes; after its end first what it had sent before."""
        while True:
            if self._receiving is None:
                self._receiving = asyncio.ensure_future(self._iopub.recv_multipart())
            receiving = self._receiving
            either: set[asyncio.Future[Any]] = {receiving, self.process.ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            if not receiving.done():
                await asyncio.wait({receiving}, timeout=_AFTER_END_S)
                if not receiving.done():
                    raise self.process.error()
            self._receiving = None
            frames = receiving.result()
            if sum(map(len, frames)) > _LARGEST_MESSAGE:
                frames = self._without_content(frames)
            _, parts = self._session.feed_identities(frames)
            return self._session.deserialize(parts)

    def _without_content(self, frames: list[bytes]) -> list[bytes]:
        """Replace a message that would not fit into memory when decoded by a notice."""
        at = frames.index(b"<IDS|MSG>")
        header, parent = (self._session.unpack(frame) for frame in frames[at + 2 : at + 4])
        size = sum(map(len, frames)) >> 20
        notice = {"name": "stderr", "text": f"An output of {size} MB was dropped.\n"}
        message = self._session.msg("stream", notice, parent={"header": parent}, header=None)
        message["header"]["date"] = header["date"]
        return [b"", *self._session.serialize(message)]

    async def _drop_replies(self) -> None:
        while await self._shell.poll(0):
            await self._shell.recv_multipart()


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
