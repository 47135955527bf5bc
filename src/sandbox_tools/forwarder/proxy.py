import asyncio
import html
import re
import ssl
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from urllib.parse import urlsplit

from sandbox_tools.forwarder.http_head import Head, MalformedHead, read_head, write_head
from sandbox_tools.forwarder.routes import Address, InvalidConfig, Routes, Upstream, parse_address

LIMIT = 64 * 1024

_CONNECT_SECONDS = 30
_LAST_SECONDS = 30
_PIECE = 64 * 1024
_ASKS_FOR_PASSWORD = re.compile(rb"HTTP/1\.[01] 407\b")


class Refused(Exception):
    """The request cannot be forwarded; the message is shown to the browser."""

    def __init__(self, message: str, *, status: int = 502) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Traffic:
    """Bytes that passed upstream proxies, from the browser's view."""

    bytes_in: int = 0
    bytes_out: int = 0


@dataclass
class _Tunnel:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    upstream: Upstream
    request: str | None = None
    """The URL of a plain request to an upstream proxy."""


@dataclass
class Forwarder:
    """Forwards the requests of the browser, as an HTTP proxy."""

    routes: Routes = field(default_factory=Routes)
    traffic: Traffic = field(default_factory=Traffic)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection of the browser."""
        try:
            await self._serve(reader, writer)
        except Refused as refused:
            # Browsers show no page for a refused CONNECT: the reason is in the log of the service.
            print(refused, file=sys.stderr, flush=True)  # noqa: T201 - for the reason above
            writer.write(_error_page(refused))
        except MalformedHead:
            writer.write(_error_page(Refused("The request is not valid HTTP/1.1.", status=400)))
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            with suppress(OSError):
                writer.close()
                await writer.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await read_head(reader)
        if head is None:
            return
        method, target, _ = head.first_line
        if method == "CONNECT":
            tunnel = await self._open(_address_of(target))
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            tunnel = await self._send_request(head)
        try:
            await self._splice(reader, writer, tunnel)
        finally:
            tunnel.writer.close()

    async def _send_request(self, head: Head) -> _Tunnel:
        """Open the connection of a plain request and send its head; its connection serves no other request."""
        method, target, version = head.first_line
        url = urlsplit(target)
        if url.scheme not in {"http", "ws"} or not url.hostname:
            raise Refused(f"The proxy cannot forward {target!r}.", status=400)
        address = Address(url.hostname, url.port or 80)
        upstream = self._find(address.host)
        headers = head.forwarded_headers
        if head.find("upgrade") is None:
            headers.append(("Connection", "close"))
        if upstream.server is None:
            tunnel = await self._connect(self.routes.resolve(address), upstream)
            path = url._replace(scheme="", netloc="", fragment="").geturl() or "/"
            line = f"{method} {path} {version}"
        else:
            tunnel = await self._connect(upstream.server, upstream)
            if upstream.authorization is not None:
                headers.append(("Proxy-Authorization", upstream.authorization))
            line = f"{method} {target} {version}"
            tunnel.request = target
        self._count_out(tunnel, request := write_head(line, headers))
        tunnel.writer.write(request)
        return tunnel

    async def _open(self, address: Address) -> _Tunnel:
        """Open a tunnel to an address, through the upstream of its host."""
        upstream = self._find(address.host)
        if upstream.server is None:
            return await self._connect(self.routes.resolve(address), upstream)
        tunnel = await self._connect(upstream.server, upstream)
        headers = [("Host", str(address))]
        if upstream.authorization is not None:
            headers.append(("Proxy-Authorization", upstream.authorization))
        tunnel.writer.write(write_head(f"CONNECT {address} HTTP/1.1", headers))
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                answer = await read_head(tunnel.reader)
        except (MalformedHead, TimeoutError, OSError):
            answer = None
        if answer is None or not answer.first_line[1].startswith("2"):
            tunnel.writer.close()
            status = "no valid answer" if answer is None else " ".join(answer.first_line[1:])
            raise Refused(f"The proxy {upstream.server} refused {address}: {status}.")
        return tunnel

    def _find(self, host: str) -> Upstream:
        if not self.routes.permits(host):
            raise Refused(f"{host} is not among the allowed domains of this session.", status=403)
        upstream = self.routes.find(host)
        if upstream is None:
            raise Refused(f"No proxy of this session covers {host}, and nothing is sent directly.")
        return upstream

    async def _connect(self, address: Address, upstream: Upstream) -> _Tunnel:
        is_proxy = address == upstream.server
        context = ssl.create_default_context() if is_proxy and upstream.is_tls else None
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(
                    address.host, address.port, ssl=context, limit=LIMIT
                )
        except (OSError, TimeoutError) as error:
            what = "proxy" if is_proxy else "host"
            reason = (
                "timed out" if isinstance(error, TimeoutError) else error.strerror or str(error)
            )
            raise Refused(f"The {what} {address} cannot be reached: {reason}.") from None
        return _Tunnel(reader, writer, upstream)

    async def _splice(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, tunnel: _Tunnel
    ) -> None:
        async def upload() -> None:
            while data := await reader.read(_PIECE):
                self._count_out(tunnel, data)
                tunnel.writer.write(data)
                await tunnel.writer.drain()
            if tunnel.writer.can_write_eof():
                tunnel.writer.write_eof()

        async def download() -> None:
            is_first = True
            while data := await tunnel.reader.read(_PIECE):
                if tunnel.upstream.server is not None:
                    self.traffic.bytes_in += len(data)
                if is_first and tunnel.request is not None and _ASKS_FOR_PASSWORD.match(data):
                    # The browser would ask for a password of this forwarder.
                    raise Refused(
                        f"The proxy {tunnel.upstream.server} refused {tunnel.request}: 407, "
                        "its user or password is wrong."
                    )
                is_first = False
                writer.write(data)
                await writer.drain()

        up, down = asyncio.create_task(upload()), asyncio.create_task(download())
        try:
            await asyncio.wait({up, down}, return_when=asyncio.FIRST_COMPLETED)
            # Browsers close both directions at once; the end of a response may still be on its way.
            with suppress(TimeoutError):
                async with asyncio.timeout(_LAST_SECONDS):
                    await down
        finally:
            up.cancel()
            down.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await up

    def _count_out(self, tunnel: _Tunnel, data: bytes) -> None:
        if tunnel.upstream.server is not None:
            self.traffic.bytes_out += len(data)


def _address_of(target: str) -> Address:
    try:
        return parse_address(target)
    except InvalidConfig as error:
        raise Refused(str(error), status=400) from None


def _error_page(refused: Refused) -> bytes:
    text = html.escape(str(refused))
    title = "Domain not allowed" if refused.status == HTTPStatus.FORBIDDEN else "Proxy error"
    page = f"<!doctype html><title>{title}</title><h1>{title}</h1><p>{text}</p>".encode()
    reason = HTTPStatus(refused.status).phrase
    headers = [
        ("Content-Type", "text/html; charset=utf-8"),
        ("Content-Length", str(len(page))),
        ("Cache-Control", "no-store"),
        ("Connection", "close"),
    ]
    return write_head(f"HTTP/1.1 {refused.status} {reason}", headers) + page
