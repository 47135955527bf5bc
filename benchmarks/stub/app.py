"""The part of E2B's API that the server's lifecycle uses, answered immediately from memory."""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl, unquote_plus

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from benchmarks.stub.sandboxes import DEFAULT_SECONDS, StubSandbox, StubSandboxes

API_KEY = "e2b_00000000000000000000000000000000"

_STATES = frozenset({"running", "paused"})
_Act = Callable[[Request, StubSandbox], Awaitable[Response]]


def stub_app() -> Starlette:
    calls = _Calls(StubSandboxes())
    one = "/sandboxes/{sandbox_id}"
    return Starlette(
        routes=[
            _route("POST", "/v2/sandboxes", calls.create),
            _route("GET", "/v2/sandboxes", calls.list_all),
            _route("GET", one, calls.known(calls.info)),
            _route("DELETE", one, calls.known(calls.kill)),
            _route("GET", f"{one}/metrics", calls.known(calls.metrics)),
            _route("POST", f"/v2{one}/connect", calls.known(calls.connect)),
            _route("POST", f"{one}/pause", calls.known(calls.pause)),
            _route("POST", f"{one}/timeout", calls.known(calls.set_timeout)),
            Route("/health", calls.health, methods=["GET"]),
            Route("/arrivals/{act}", calls.arrivals, methods=["GET"]),
        ]
    )


class _Calls:
    def __init__(self, sandboxes: StubSandboxes) -> None:
        self._sandboxes = sandboxes

    async def create(self, request: Request) -> Response:
        key = request.headers.get("Idempotency-Key")
        sandbox = self._sandboxes.create(await request.json(), key=key)
        return _answer(sandbox.access(), status=201)

    async def list_all(self, request: Request) -> Response:
        query = request.query_params
        states = frozenset(query["state"].split(",")) if query.get("state") else _STATES
        # Encoded as a whole, and each part again by the SDK.
        labels = dict(parse_qsl(unquote_plus(query.get("metadata", ""))))
        found = self._sandboxes.list_all(labels=labels, states=states)
        first, limit = int(query.get("nextToken") or 0), int(query.get("limit") or 100)
        answer = _answer([one.wire() for one in found[first : first + limit]])
        if first + limit < len(found):
            answer.headers["X-Next-Token"] = str(first + limit)
        return answer

    def known(self, act: _Act) -> Callable[[Request], Awaitable[Response]]:
        async def find(request: Request) -> Response:
            sandbox_id = request.path_params["sandbox_id"]
            self._sandboxes.note(act.__name__, sandbox_id)
            sandbox = self._sandboxes.find(sandbox_id)
            if sandbox is None:
                return _refusal(404, f"Sandbox {sandbox_id} was not found")
            return await act(request, sandbox)

        return find

    async def info(self, _request: Request, sandbox: StubSandbox) -> Response:
        return _answer(sandbox.wire())

    async def kill(self, _request: Request, sandbox: StubSandbox) -> Response:
        self._sandboxes.remove(sandbox)
        return Response(status_code=204)

    async def metrics(self, _request: Request, _sandbox: StubSandbox) -> Response:
        return _answer([])

    async def connect(self, request: Request, sandbox: StubSandbox) -> Response:
        status = 201 if sandbox.paused else 200
        sandbox.paused = False
        sandbox.extend((await request.json()).get("timeout", DEFAULT_SECONDS))
        return _answer(sandbox.access(), status=status)

    async def pause(self, _request: Request, sandbox: StubSandbox) -> Response:
        if sandbox.paused:
            return _refusal(409, f"Sandbox {sandbox.id} is already paused")
        sandbox.paused = True
        return Response(status_code=204)

    async def set_timeout(self, request: Request, sandbox: StubSandbox) -> Response:
        if sandbox.paused:
            return _refusal(404, f"Sandbox {sandbox.id} is not running")
        sandbox.ends_at = 0
        sandbox.extend((await request.json()).get("timeout", DEFAULT_SECONDS))
        return Response(status_code=204)

    async def health(self, request: Request) -> Response:
        """Answer as a server in the sandbox, reached through the provider."""
        sandbox = self._sandboxes.find(request.headers.get("E2b-Sandbox-Id", ""))
        return Response(status_code=502 if sandbox is None or sandbox.paused else 204)

    async def arrivals(self, request: Request) -> Response:
        """Return when each sandbox first got this call; a route that no provider has."""
        return _answer(self._sandboxes.arrivals.get(request.path_params["act"], {}))


def _route(method: str, path: str, act: Callable[[Request], Awaitable[Response]]) -> Route:
    async def authorized(request: Request) -> Response:
        if request.headers.get("X-API-Key") != API_KEY:
            return _refusal(401, "Invalid API key")
        return await act(request)

    return Route(path, authorized, methods=[method])


def _answer(body: Any, *, status: int = 200) -> JSONResponse:
    return JSONResponse(body, status_code=status)


def _refusal(status: int, message: str) -> Response:
    return _answer({"code": status, "message": message}, status=status)
