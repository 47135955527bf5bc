from collections.abc import Iterable
from contextlib import suppress

from starlette.types import ASGIApp, Receive, Scope, Send

from sandbox_engine.control.services import Services
from sandbox_engine.envd.app import EnvdApp
from sandbox_engine.envd.protocol.access import InvalidExpiration, is_token, sign
from sandbox_engine.envd.protocol.query import signed_request
from sandbox_engine.envd.protocol.responses import error_answer
from sandbox_engine.http.error_pages import bad_route
from sandbox_engine.http.routing import (
    ENVD_PORT,
    BadRoute,
    ControlApi,
    SandboxTraffic,
    route,
)
from sandbox_engine.ports.auto_resume import AutoResume
from sandbox_engine.ports.port_access import find_rejection, forwarded_host
from sandbox_engine.ports.proxy import PortProxy
from sandbox_engine.records.sandbox import SandboxRecord
from sandbox_engine.sandboxes.sandbox import Sandbox
from sandbox_http.tunnel import EXTENSION


class App:
    """ASGI app of the engine's port: routes by host to the API, envd or a sandbox's port."""

    def __init__(self, api: ASGIApp, services: Services) -> None:
        self._api = api
        self._api_key = services.api_key.encode()
        self._service = services.sandboxes
        self._auto_resume = AutoResume(services.sandboxes)
        self._domain = services.domain

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._api(scope, receive, send)
            return
        try:
            target = route(scope["headers"], domain=self._domain)
        except BadRoute as error:
            await bad_route(str(error))(scope, receive, send)
            return
        match target:
            case SandboxTraffic():
                await self._traffic(target, scope, receive, send)
            case ControlApi():
                await self._control(scope, receive, send)

    async def _control(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not is_signed(scope):
            await self._api(scope, receive, send)
        elif signer := find_signer(self._service.sandboxes(), scope):
            await self._traffic(SandboxTraffic(signer.id, ENVD_PORT), scope, receive, send)
        else:
            await error_answer(401, "invalid signature")(scope, receive, send)

    async def _traffic(
        self, traffic: SandboxTraffic, scope: Scope, receive: Receive, send: Send
    ) -> None:
        found = await self._auto_resume.find(traffic.sandbox_id, traffic.port, scope)
        if not isinstance(found, Sandbox):
            await found(scope, receive, send)
        elif traffic.port == ENVD_PORT:
            with found.serving(scope["extensions"][EXTENSION]["connection"]):
                await EnvdApp.of(found)(scope, receive, send)
        else:
            await self._enter(found, traffic, scope, receive, send)

    async def _enter(
        self,
        sandbox: Sandbox,
        traffic: SandboxTraffic,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        refusal = find_rejection(sandbox.record, scope["headers"])
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self._proxy(sandbox)(
            scope,
            receive,
            send,
            port=traffic.port,
            host=forwarded_host(sandbox.record, traffic.port),
            forwarded=traffic.by_headers,
        )

    def _proxy(self, sandbox: Sandbox) -> PortProxy:
        def make() -> PortProxy:
            secrets = {self._api_key, *(secret.encode() for secret in sandbox.secrets)}
            proxy = PortProxy(sandbox.dial, sandbox_id=sandbox.id, secrets=secrets)
            sandbox.on_disconnect(proxy.close, at_pause=proxy.suspend)
            return proxy

        return sandbox.get_or_create(PortProxy, make)


def is_signed(scope: Scope) -> bool:
    """Return whether this is a file request with a signed URL on the shared address."""
    return scope["path"] == "/files" and b"signature=" in scope["query_string"]


def find_signer(records: Iterable[SandboxRecord], scope: Scope) -> SandboxRecord | None:
    """Find the sandbox whose token signed a file request.

    The SDK's signed URLs name no sandbox when all sandboxes share one address.
    """
    request = signed_request(scope)
    signature = request.signature or ""
    with suppress(InvalidExpiration):
        return next(
            (
                record
                for record in records
                if is_token(sign(request, record.access_token), signature)
            ),
            None,
        )
    return None
