"""WebDriver: requests of Selenium to the chromedriver in a sandbox, whose sessions use the browser that runs there."""

import json
from dataclasses import replace
from typing import Any

from starlette.types import Message

from sandbox_server.browsers.cdp.answers import CollectedAnswer
from sandbox_server.browsers.cdp.proxy import CdpRequest, drop_client_headers
from sandbox_server.browsers.policies import WebDriverClients
from sandbox_server.domain.errors import BrowserNotRunning, PortNotOpen
from sandbox_server.domain.service_ports import CDP_PORT, WEBDRIVER_PORT
from sandbox_server.http.faults import BodyTooLarge
from sandbox_server.ports.port_proxy import PortProxy
from sandbox_server.proxy.client import Client, ClientGone
from sandbox_server.proxy.proxy_request import ProxyRequest
from sandbox_server.proxy.public_origin import PublicOrigin
from sandbox_server.proxy.targets import PortTarget
from sandbox_server.sandboxes.service import SandboxController

WEBDRIVER_PATH = "/webdriver"

_LOCAL = f"localhost:{WEBDRIVER_PORT}"
_NEW_SESSION = f"{WEBDRIVER_PATH}/session"
_LARGEST_SESSION = 16 * 1024 * 1024  # with extensions
_CHANGED = frozenset({b"content-length", b"transfer-encoding"})
_OPTIONS = "goog:chromeOptions"


class WebDriverProxy:
    """Forwards WebDriver requests to chromedriver; they resume a paused sandbox."""

    def __init__(
        self, controller: SandboxController, port_proxy: PortProxy, clients: WebDriverClients
    ) -> None:
        self._controller = controller
        self._port_proxy = port_proxy
        self._clients = clients

    async def serve(self, request: CdpRequest) -> None:
        """Answer a request below `/webdriver`. Raises only before the response has started."""
        scope = request.client.scope
        drop_client_headers(scope)
        row = await self._controller.get(request.caller, request.sandbox_id)
        await self._clients.note(row, scope["method"], request.path)
        try:
            if scope["method"] == "POST" and request.path.rstrip("/") == _NEW_SESSION:
                await self._create_session(request)
            else:
                await self._forward(request, request.client)
        except PortNotOpen:
            raise BrowserNotRunning from None

    async def _create_session(self, request: CdpRequest) -> None:
        body = attach_to_browser(await _read_body(request.client))
        answer = CollectedAnswer(_with_body(request.client, body))
        await self._forward(request, answer.client)
        websocket = request.base.replace("http", "ws", 1) + WEBDRIVER_PATH
        await answer.send(lambda text: text.replace(f"ws://{_LOCAL}".encode(), websocket.encode()))

    async def _forward(self, request: CdpRequest, client: Client) -> None:
        await self._port_proxy.forward(
            ProxyRequest(
                client=client,
                caller=request.caller,
                target=PortTarget(request.sandbox_id, WEBDRIVER_PORT),
                origin=PublicOrigin(
                    scheme="http",
                    host=_LOCAL,  # chromedriver answers no other host
                    client=None,
                    path=WEBDRIVER_PATH,
                ),
                path=request.path.removeprefix(WEBDRIVER_PATH).encode() or b"/",
            )
        )


def attach_to_browser(body: bytes) -> bytes:
    """Change the capabilities of a new session so that it uses the running browser and starts none."""
    try:
        wanted: Any = json.loads(body)
    except (ValueError, RecursionError):  # chromedriver answers with its own error
        return body
    capabilities = wanted.get("capabilities") if isinstance(wanted, dict) else None
    if not isinstance(capabilities, dict):
        return body
    always = capabilities.get("alwaysMatch") or {}
    first = capabilities.get("firstMatch") or [{}]
    if not isinstance(always, dict) or not isinstance(first, list):
        return body
    options: dict[str, Any] = {}
    for each in (always, *first):
        if isinstance(each, dict) and isinstance(each.get(_OPTIONS), dict):
            options |= each[_OPTIONS]
    options = {**options, "debuggerAddress": f"127.0.0.1:{CDP_PORT}"}
    changed = {
        "alwaysMatch": {**always, _OPTIONS: options},
        # An option may be in one of the two only.
        "firstMatch": [_without_options(each) for each in first],
    }
    return json.dumps({**wanted, "capabilities": {**capabilities, **changed}}).encode()


def _without_options(match: Any) -> Any:
    if not isinstance(match, dict):
        return match
    return {name: value for name, value in match.items() if name != _OPTIONS}


async def _read_body(client: Client) -> bytes:
    body, more = b"", True
    while more:
        message = await client.receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > _LARGEST_SESSION:
            raise BodyTooLarge(_LARGEST_SESSION)
    return body


def _with_body(client: Client, body: bytes) -> Client:
    """Replace the request's body."""
    kept = [each for each in client.scope["headers"] if each[0].lower() not in _CHANGED]
    client.scope["headers"] = [*kept, (b"content-length", b"%d" % len(body))]
    sent = False

    async def receive() -> Message:
        nonlocal sent
        if sent:
            return await client.receive()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replace(client, receive=receive)
