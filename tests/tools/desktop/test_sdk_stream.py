"""The VNC port and noVNC's page, which the shims of the template `desktop` start for the e2b-desktop SDK."""

import asyncio
import os
import signal
import sys
from contextlib import asynccontextmanager, suppress

import httpx
import pytest
from websockets.asyncio.client import connect
from websockets.typing import Subprotocol

from sandbox_tools.desktop.vnc_port import encrypt, read_password
from tests.ports import free_port
from tests.tools.desktop.rfb_viewer import RfbViewer

# "password" in the file of every VNC program.
STORED = bytes.fromhex("dbd83cfd727a1458")
PAGE = "<title>noVNC</title>"


class TcpSocket:
    """A TCP connection, as RfbViewer reads WebSockets."""

    def __init__(self, reader, writer):
        self._reader = reader
        self._writer = writer

    async def send(self, sent):
        self._writer.write(sent)
        await self._writer.drain()

    async def recv(self, *, decode):
        received = await self._reader.read(65536)
        if not received:
            raise EOFError
        return received


@asynccontextmanager
async def vnc_port(desktop, *options):
    """Start the port in the background as the SDK does, and end it as the SDK does."""
    port = free_port()
    program = (
        "import sys; from sandbox_tools.desktop.vnc_port import main; sys.exit(main(sys.argv[1:]))"
    )
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, "-bg", "-display", ":0", "-forever", "-wait", "50"),
        *("-shared", "-rfbport", str(port), "--rfb", str(desktop.rfb), *options),
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    assert process.returncode == 0
    assert printed == f"PORT={port}\n".encode()
    try:
        yield port
    finally:
        found = await asyncio.create_subprocess_exec(
            "pgrep", "-f", f"rfbport {port}", stdout=asyncio.subprocess.PIPE
        )
        for pid in (await found.communicate())[0].split():
            os.kill(int(pid), signal.SIGTERM)


@asynccontextmanager
async def viewer_of(port):
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield RfbViewer(TcpSocket(reader, writer))
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def test_the_port_shows_the_display_and_passes_input(desktop):
    async with (
        vnc_port(desktop, "-nopw") as port,
        viewer_of(port) as viewer,
        viewer_of(port) as second,
    ):
        await viewer.shake_hands(shared=False)
        await second.shake_hands()
        assert viewer.size == (1024, 768)
        await viewer.pointer(77, 88)
        assert await viewer.update() > 0
        assert await desktop.cursor() == (77, 88)
        assert await second.update() > 0


@pytest.mark.parametrize(("password", "is_admitted"), [(b"password", True), (b"passwore", False)])
async def test_a_stored_password_is_required(desktop, tmp_path, password, is_admitted):
    stored = tmp_path / "passwd"
    stored.write_bytes(STORED)
    assert read_password(stored) == b"password"
    options = ("-rfbauth", str(stored))
    async with vnc_port(desktop, *options) as port, viewer_of(port) as viewer:
        assert await viewer.read(12) == b"RFB 003.008\n"
        await viewer.socket.send(b"RFB 003.008\n")
        assert await viewer.read(2) == b"\1\2"
        await viewer.socket.send(b"\2")
        await viewer.socket.send(encrypt(await viewer.read(16), password))
        result = await viewer.read(4)
        assert result == (bytes(4) if is_admitted else b"\0\0\0\1")
        if is_admitted:
            await viewer.socket.send(b"\1")
            assert await viewer.read(4) == b"\4\0\3\0"
        else:
            await viewer.read(4)
            assert await viewer.read(22) == b"The password is wrong."
            with pytest.raises(EOFError):
                await viewer.read(1)


async def test_the_page_and_its_socket_are_on_one_port(desktop, tmp_path):
    web = tmp_path / "web"
    web.mkdir()
    (web / "vnc.html").write_text(PAGE)
    (tmp_path / "secret").write_text("secret")
    listen = free_port()
    async with vnc_port(desktop, "-nopw") as port:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sandbox_tools", "serve-novnc", "--vnc", f"localhost:{port}"),
            *("--listen", str(listen), "--web", str(web)),
        )
        try:
            await see_pages(f"http://127.0.0.1:{listen}")
            async with connect(
                f"ws://127.0.0.1:{listen}/websockify",
                subprotocols=[Subprotocol("binary")],
                proxy=None,
            ) as socket:
                viewer = RfbViewer(socket)
                await viewer.shake_hands()
                assert viewer.size == (1024, 768)
        finally:
            process.terminate()
            await process.wait()


async def see_pages(url):
    async with httpx.AsyncClient(base_url=url) as client:
        async with asyncio.timeout(60):
            while True:
                try:
                    page = await client.get("/vnc.html?autoconnect=true")
                    break
                except httpx.TransportError:
                    await asyncio.sleep(0.02)
        assert page.text == PAGE
        assert page.headers["content-type"] == "text/html"
        for path in ("/nothing", "/%2e%2e/secret", "/..%2fsecret"):
            assert (await client.get(path)).status_code == 404


async def test_the_command_resizes_the_display_without_a_token(desktop):
    async def resize(*arguments):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sandbox_tools", "resize-desktop", *arguments),
            *("--display", desktop.display, "--rfb", str(desktop.rfb)),
            stderr=asyncio.subprocess.PIPE,
        )
        _, said = await process.communicate()
        return process.returncode, said.decode()

    assert await resize("800", "600", "--dpi", "110") == (0, "")
    state = (await desktop.client.get("/state")).json()
    assert (state["resolution"], state["dpi"]) == ({"width": 800, "height": 600}, 110)
    code, said = await resize("16384", "16384")
    assert (code, said) == (1, "The width is 16384 pixels; it must be 64 to 8192 pixels.\n")
    assert await resize("1024", "768", "--dpi", "96") == (0, "")
