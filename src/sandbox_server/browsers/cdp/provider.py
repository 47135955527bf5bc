"""Browsers of providers that have browsers only: no ports, but a WebSocket for the browser and one for each page."""

import json
from dataclasses import replace
from typing import Any

from starlette.types import Message

from sandbox_server.domain.errors import BackendUnavailable, BrowserPathNotFound
from sandbox_server.ports.port_proxy import PortProxy
from sandbox_server.providers.browserbase import BrowserbaseBackend
from sandbox_server.providers.protocol.errors import LacksCapability
from sandbox_server.providers.protocol.provider import PortAddress
from sandbox_server.proxy.client import Client
from sandbox_server.proxy.proxy_request import ProxyRequest
from sandbox_server.proxy.public_origin import PublicOrigin
from sandbox_server.sandboxes.sandbox_access import UsableSandbox

_LISTS = frozenset({"/json", "/json/list"})
_FRONT_END = "/devtools/inspector.html"
_PAGE = "/devtools/page/"
_OK, _SEE_OTHER, _ERROR = 200, 303, 400


async def forward_to_provider(
    port_proxy: PortProxy, used: UsableSandbox, request: ProxyRequest, *, local: str
) -> None:
    """Answer a request to a browser at its provider; `local` is the browser's address in descriptions."""
    backend, path = used.backend, request.path.decode()
    assert isinstance(backend, BrowserbaseBackend)
    websocket = f"ws://{local}/devtools"
    match path.rstrip("/"):
        case _ if request.relay is not None:
            address = await _find_address(backend, used, path)
            await port_proxy.forward(_to(address, request, backend.name))
        case "/json/version":
            await _send_json(request.client, _version(f"{websocket}/browser/{used.row.id}"))
        case plain if plain in _LISTS:
            pages = await backend.list_pages(used.access)
            await _send_json(request.client, [_target(page, websocket) for page in pages])
        case plain if plain == _FRONT_END:
            await _redirect(request.client, await backend.live_view_url(used.access))
        case _:
            raise LacksCapability(backend.name, "devtools")


async def _find_address(backend: BrowserbaseBackend, used: UsableSandbox, path: str) -> PortAddress:
    if not path.startswith(_PAGE):
        return backend.browser_address(used.access)
    address = await backend.find_page(used.access, path.removeprefix(_PAGE))
    if address is None:
        raise BrowserPathNotFound(path)
    return address


def _to(address: PortAddress, request: ProxyRequest, backend: str) -> ProxyRequest:
    """Send an upgrade to the provider, without what only sandboxes of ours understand."""

    async def send(message: Message) -> None:
        # Its answer may say something about our account there.
        if message["type"] == "http.response.start" and message["status"] >= _ERROR:
            raise BackendUnavailable(
                backend, f"refused a connection to the browser: answered {message['status']}"
            )
        await request.client.send(message)

    return replace(
        request,
        client=replace(request.client, send=send),
        address=address,
        origin=PublicOrigin(scheme="http", host=address.authority, client=None),
        extra_headers=(),
    )


def _version(websocket_url: str) -> dict[str, str]:
    return {
        "Browser": "Chrome",
        "Protocol-Version": "1.3",
        "webSocketDebuggerUrl": websocket_url,
    }


def _target(page: dict[str, Any], websocket: str) -> dict[str, Any]:
    return {
        "id": page["id"],
        "type": "page",
        "title": page.get("title", ""),
        "url": page.get("url", ""),
        "faviconUrl": page.get("faviconUrl", ""),
        "webSocketDebuggerUrl": f"{websocket}/page/{page['id']}",
    }


async def _send_json(client: Client, document: Any) -> None:
    await _send(client, _OK, (b"content-type", b"application/json"), json.dumps(document).encode())


async def _redirect(client: Client, url: str) -> None:
    await _send(client, _SEE_OTHER, (b"location", url.encode()), b"")


async def _send(client: Client, status: int, header: tuple[bytes, bytes], body: bytes) -> None:
    length = (b"content-length", b"%d" % len(body))
    headers = [
        header,
        length,
        (b"cache-control", b"no-store"),
        (b"referrer-policy", b"no-referrer"),
    ]
    await client.send({"type": "http.response.start", "status": status, "headers": headers})
    await client.send({"type": "http.response.body", "body": body})
