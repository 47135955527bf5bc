"""The VNC port of the e2b-desktop SDK's stream: TCP in front of Xvnc's socket, with a password if one is asked for."""

import argparse
import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sandbox_tools.desktop.display import SOCKET
from sandbox_tools.desktop.rfb import (
    NO_SECURITY,
    VERSION,
    DisplayUnavailable,
    open_socket,
    shake_hands,
)

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers import Cipher, modes

_PASSWORD_SECURITY = 2
_PASSWORD_BYTES = 8
_CHALLENGE_BYTES = 16
# Every VNC program obfuscates its file of a password with this key.
_FILE_KEY = bytes([23, 82, 107, 6, 35, 78, 88, 7])
_CHUNK_BYTES = 64 << 10
_STALL_SECONDS = 20
_MOST_VIEWERS = 20


class VncPort:
    """Accepts viewers on a port, each with a connection of its own to Xvnc."""

    def __init__(self, display: Path, password: Path | None) -> None:
        self._display = display
        self._password = password
        self._viewers: set[asyncio.Task[None]] = set()

    async def serve(self, listener: socket.socket) -> None:
        """Serve until SIGTERM."""
        ended = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, ended.set)
        async with await asyncio.start_server(self._accept, sock=listener):
            await ended.wait()
            for viewer in self._viewers:
                viewer.cancel()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        viewer = asyncio.current_task()
        assert viewer is not None
        if len(self._viewers) >= _MOST_VIEWERS:
            writer.close()
            return
        self._viewers.add(viewer)
        try:
            with contextlib.suppress(OSError, EOFError, TimeoutError, DisplayUnavailable):
                await self._relay(reader, writer)
        finally:
            self._viewers.discard(viewer)
            writer.close()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with asyncio.timeout(_STALL_SECONDS):
            await self._admit(reader, writer)
            display_reader, display_writer = await open_socket(self._display)
            await shake_hands(display_reader, display_writer)
            await reader.readexactly(1)  # whether to share, which shake_hands has answered
        directions = [
            asyncio.create_task(_copy(reader, display_writer)),
            asyncio.create_task(_copy(display_reader, writer)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            display_writer.close()
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)

    async def _admit(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(VERSION)
        if await reader.readexactly(len(VERSION)) != VERSION:
            raise DisplayUnavailable("The viewer must speak RFB 3.8.")
        offered = NO_SECURITY if self._password is None else _PASSWORD_SECURITY
        writer.write(bytes([1, offered]))
        selected = (await reader.readexactly(1))[0]
        if selected != offered or not await self._knows_password(reader, writer):
            reason = b"The password is wrong."
            writer.write(b"\0\0\0\1" + len(reason).to_bytes(4, "big") + reason)
            await writer.drain()
            raise DisplayUnavailable("The viewer is not admitted.")
        writer.write(bytes(4))

    async def _knows_password(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bool:
        if self._password is None:
            return True
        challenge = os.urandom(_CHALLENGE_BYTES)
        writer.write(challenge)
        response = await reader.readexactly(_CHALLENGE_BYTES)
        return secrets.compare_digest(response, encrypt(challenge, read_password(self._password)))


def read_password(path: Path) -> bytes:
    """Read a password that `x11vnc -storepasswd` or `vncpasswd` has stored."""
    decryptor = _des(_FILE_KEY).decryptor()
    content = path.read_bytes()[:_PASSWORD_BYTES]
    return bytes(decryptor.update(content) + decryptor.finalize()).rstrip(b"\0")


def encrypt(challenge: bytes, password: bytes) -> bytes:
    """Make a client's response to the challenge."""
    encryptor = _des(password).encryptor()
    return bytes(encryptor.update(challenge) + encryptor.finalize())


def _des(password: bytes) -> "Cipher[modes.ECB]":
    # Most streams have no password, and cryptography needs 10 MB. DES is the protocol's choice.
    from cryptography.hazmat.decrepit.ciphers.algorithms import TripleDES  # noqa: PLC0415
    from cryptography.hazmat.primitives.ciphers import Cipher, modes  # noqa: PLC0415

    # VNC reverses the bits of each byte of the key. Three equal keys make DES of TripleDES.
    padded = password[:_PASSWORD_BYTES].ljust(_PASSWORD_BYTES, b"\0")
    key = bytes(int(f"{byte:08b}"[::-1], 2) for byte in padded)
    return Cipher(TripleDES(key * 3), modes.ECB())  # noqa: S305


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(_CHUNK_BYTES):
        writer.write(chunk)
        async with asyncio.timeout(_STALL_SECONDS):
            await writer.drain()


def main(arguments: Sequence[str]) -> int:
    """Serve like `x11vnc -forever -shared`; flags that mean nothing to Xvnc are ignored."""
    parser = argparse.ArgumentParser(prog="x11vnc", allow_abbrev=False, prefix_chars="-")
    parser.add_argument("-bg", action="store_true")
    parser.add_argument("-rfbport", type=int, default=5900)
    parser.add_argument("-localhost", action="store_true")
    parser.add_argument("-usepw", action="store_true")
    parser.add_argument("-rfbauth", type=Path)
    parser.add_argument("--rfb", type=Path, default=SOCKET)
    options, _ = parser.parse_known_args(arguments)
    password = options.rfbauth or (Path.home() / ".vnc/passwd" if options.usepw else None)
    try:
        listener = socket.create_server(("127.0.0.1" if options.localhost else "", options.rfbport))
        if password is not None:
            password.stat()
    except OSError as error:
        sys.stderr.write(f"x11vnc: {error}\n")
        return 1
    sys.stdout.write(f"PORT={options.rfbport}\n")
    sys.stdout.flush()
    if options.bg and os.fork():
        return 0
    if options.bg:
        _leave_terminal()
    asyncio.run(VncPort(options.rfb, password).serve(listener))
    return 0


def _leave_terminal() -> None:
    os.setsid()
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(nothing, stream)
