import re

from starlette.types import Receive, Scope, Send

from sandbox_server.domain.access import Caller
from sandbox_server.domain.access import Scope as KeyScope
from sandbox_server.domain.errors import SandboxNotFound
from sandbox_server.domain.ids import PATTERN
from sandbox_server.http.deps import find_component
from sandbox_server.http.faults import Malformed
from sandbox_server.http.request_metrics import NamedRoute
from sandbox_server.ports.port_proxy import PortProxy
from sandbox_server.proxy.client import Client
from sandbox_server.proxy.proxy_request import ProxyRequest
from sandbox_server.proxy.public_origin import path_origin
from sandbox_server.proxy.targets import PortTarget, PublicAddress, path_of
from sandbox_server.structured_logging import add_to_log_context

PROXY_PATH = "/v1/sandboxes/{sandbox_id}/ports/{port}/proxy{rest:path}"

_PORT = re.compile(r"[1-9][0-9]{0,4}")
_MAX_PORT = 65_535
_ROUTE = NamedRoute(PROXY_PATH)


class PathProxy:
    """Forwards requests below a path of the API to a port of a sandbox.

    Responses have the origin of the API. They are therefore sandboxed in browsers: no scripts, no cookies.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = _ROUTE
        public_address = find_component(scope, PublicAddress)
        caller: Caller = scope["state"]["caller"]
        caller.require(KeyScope.SANDBOXES)
        target = _target_of(scope)
        add_to_log_context(sandbox_id=target.sandbox_id)
        client = Client(scope, receive, send)
        await find_component(scope, PortProxy).forward(
            ProxyRequest(
                client=client,
                caller=caller,
                target=target,
                origin=path_origin(client, public_address, path=path_of(target)),
                path=_path_below(target, scope),
            )
        )


def _target_of(scope: Scope) -> PortTarget:
    sandbox_id, port = (scope["path_params"][name] for name in ("sandbox_id", "port"))
    if re.match(PATTERN, sandbox_id) is None:
        raise SandboxNotFound(sandbox_id)
    if _PORT.fullmatch(port) is None or int(port) > _MAX_PORT:
        raise Malformed(f"Invalid port {port!r}: use a number from 1 to 65535.")
    return PortTarget(sandbox_id, int(port))


def _path_below(target: PortTarget, scope: Scope) -> bytes:
    raw_path: bytes = scope["raw_path"]
    below = raw_path.removeprefix(path_of(target).encode())
    # Proxies disagree about escaped characters, so the path before the port's must be unescaped.
    if below == raw_path or (below and not below.startswith(b"/")):
        raise Malformed("Percent-encoding is not allowed before the path in the sandbox.")
    return below or b"/"
