"""The only thing of the server that a sandbox reaches: its git endpoint, as http://git.sandbox/git/….

The source address says which sandbox asks: the firewall drops packets with another address than the link's own. The door
says it on to the server in a signed header, so a sandbox needs no secret, and none can speak for another.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from sandbox_engine.git.requests import is_git_request, passed_on, target_of
from sandbox_engine.git.server_address import ServerAddress, ServerAddressSource
from sandbox_engine.ports.exchange import Client, ClientGone, exchange
from sandbox_engine.records.sandbox import SandboxRecord, State
from sandbox_engine.sandboxes.service import SandboxService
from sandbox_engine.system.log import get_logger
from sandbox_http import origin
from sandbox_http.messages import RequestHead, UnsupportedRequest, make_request
from sandbox_http.upstream import Upstream, UpstreamInvalid, UpstreamLost

log = get_logger(__name__)

_CONNECT_SECONDS = 5.0
_REQUESTS_PER_SANDBOX = 16


class GitDoor:
    """ASGI app of the socket that the firewall leads sandboxes to."""

    def __init__(
        self, sandboxes: SandboxService, servers: ServerAddressSource, *, api_key: str
    ) -> None:
        self._sandboxes = sandboxes
        self._servers = servers
        self._api_key = api_key
        self._active: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        client = Client(scope, receive, send)
        sandbox = self._find_sandbox(scope)
        if sandbox is None:
            await client.answer(_refusal(403, "Only sandboxes are served here."))
        elif not is_git_request(scope):
            await client.answer(_refusal(404, "Only git is served here: /git/HOST/OWNER/NAME."))
        elif self._active[sandbox.id] >= _REQUESTS_PER_SANDBOX:
            await client.answer(
                _refusal(503, f"This sandbox has {_REQUESTS_PER_SANDBOX} git requests in progress.")
            )
        else:
            with self._counting(sandbox.id):
                await self._forward(client, sandbox)

    async def _forward(self, client: Client, sandbox: SandboxRecord) -> None:
        server = self._servers.find()
        if server is None:
            await client.answer(_refusal(503, "This engine knows no server for git."))
            return
        try:
            upstream = await _connect(server)
            try:
                await exchange(client, self._request(client.scope, sandbox, server), upstream)
            finally:
                upstream.abort(UpstreamLost())
        except ClientGone:
            pass
        except UnsupportedRequest as error:
            await client.answer(_refusal(501, str(error)))
        except (OSError, TimeoutError, UpstreamLost, UpstreamInvalid) as error:
            log.warning("git request failed", sandbox=sandbox.id, error=repr(error))
            await client.answer(_refusal(503, "The server does not answer. Try again later."))

    def _request(self, scope: Scope, sandbox: SandboxRecord, server: ServerAddress) -> RequestHead:
        target, method = target_of(scope), scope["method"]
        signed = origin.sign_origin(
            self._api_key, sandbox.id, method=method, target=target, at=int(time.time())
        )
        headers = [(b"host", server.authority), (origin.HEADER, signed)]
        return make_request(scope, target=target, headers=headers + passed_on(scope["headers"]))

    def _find_sandbox(self, scope: Scope) -> SandboxRecord | None:
        address = scope["client"][0] if scope.get("client") else None
        return next(
            (
                one
                for one in self._sandboxes.sandboxes()
                if one.state is State.RUNNING
                and one.link is not None
                and one.link.address == address
            ),
            None,
        )

    @contextmanager
    def _counting(self, sandbox_id: str) -> Iterator[None]:
        self._active[sandbox_id] += 1
        try:
            yield
        finally:
            self._active[sandbox_id] -= 1
            if not self._active[sandbox_id]:
                del self._active[sandbox_id]


async def _connect(server: ServerAddress) -> Upstream:
    async with asyncio.timeout(_CONNECT_SECONDS):
        _, upstream = await asyncio.get_running_loop().create_connection(
            Upstream, server.host, server.port, ssl=server.tls
        )
    return upstream


def _refusal(status: int, message: str) -> PlainTextResponse:
    headers = {"Retry-After": "5"} if status == 503 else None  # noqa: PLR2004
    return PlainTextResponse(f"{message}\n", status, headers)
