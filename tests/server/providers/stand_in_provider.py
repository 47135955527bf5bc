"""Servers that speak the control plane of E2B's API with the deviations of other engines.

No such engine can be installed where the tests run. Each deviation names the source it was read in; a profile of an
engine is a `Dialect` with all of its deviations. There is no envd behind them.
"""

import itertools
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http import HTTPStatus
from typing import Any
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from sandbox_server.providers.e2b import E2BBackend
from sandbox_server.providers.protocol.provider import Endpoint
from tests.server.support.socket_server import serving

INSTALLATION = "installation-of-the-test"

CREATE = "POST /v2/sandboxes"
CONNECT = "POST /v2/sandboxes/{sandbox_id}/connect"
LIST = "GET /v2/sandboxes"
INFO = "GET /sandboxes/{sandbox_id}"
PAUSE = "POST /sandboxes/{sandbox_id}/pause"
TIMEOUT = "POST /sandboxes/{sandbox_id}/timeout"
METRICS = "GET /sandboxes/{sandbox_id}/metrics"
SNAPSHOT = "POST /sandboxes/{sandbox_id}/snapshots"
KILL = "DELETE /sandboxes/{sandbox_id}"
FIND_SNAPSHOTS = "GET /snapshots"
DELETE_TEMPLATE = "DELETE /templates/{template_id:path}"
LIST_TEMPLATES = "GET /v2/templates"

_NOT_FOUND_BY_GO = "404 page not found\n"
_NOT_FOUND_BY_VALIDATOR = "validation error: no matching operation was found"


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """How an engine differs from E2B's runtime of September 2026, which the defaults are."""

    lacks: Mapping[str, int] = field(default_factory=dict)
    """Routes the engine does not have, with the status it answers to them."""
    validates_routes: bool = False
    """Answers unknown routes in JSON, as E2B's OpenAPI validator does, instead of Go's `404 page not found`."""
    ignores_filter: bool = False
    """k8e control.go:363-369: only `name=` is a filter of the list."""
    drops_metadata: bool = False
    """cocoonstack docs/e2b-compat.md: sandboxes have no metadata."""
    empty_metadata: Any = None
    """What an entry without metadata has in its place, if it has anything."""
    ignores_snapshot_name: bool = False
    """openkruise list.go:247: `name` is ignored, the answer has all snapshots."""
    drops_snapshot_name: bool = False
    """openkruise: a snapshot has the engine's own id and no other name."""
    refuses_pause: str | None = None
    """k8e: 409 means that the sandbox cannot be paused. infra sandbox_pause.go:69-81: or that it is in transition."""
    names_what_is_missing: bool = True
    """Whether a 404 says which sandbox there is none of."""
    page: int = 100
    tokens: str = "until-the-end"
    """`until-the-end`, `repeated` (the same one for ever) or `endless` (a new one for ever)."""


E2B = Dialect()
# One profile for each engine; all of an engine's deviations that matter to a test belong in its own.
INFRA_2026_08 = Dialect(  # infra 54693ff api.gen.go:19526-28 has GET /v2/sandboxes only
    lacks={CREATE: 404, CONNECT: 404}, validates_routes=True
)
KRUISE = Dialect(  # openkruise/agents 0b72c83 routes.go:54-55, list.go:247
    lacks={CREATE: 405, CONNECT: 404, METRICS: 404},
    ignores_snapshot_name=True,
    drops_snapshot_name=True,
)
K8E = Dialect(  # xiaods/k8e 994fce4 server.go:234, control.go:363-369
    lacks={CREATE: 404, CONNECT: 404, SNAPSHOT: 404, FIND_SNAPSHOTS: 404},
    ignores_filter=True,
)
PROFILES = {"infra-2026-08": INFRA_2026_08, "kruise": KRUISE, "k8e": K8E}


@dataclass
class Imitation:
    """One engine's control plane with sandboxes and snapshots of several users in it."""

    dialect: Dialect
    sandboxes: dict[str, dict[str, Any]] = field(default_factory=dict)
    snapshots: dict[str, Sequence[str] | None] = field(default_factory=dict)
    """Names by the id of each snapshot."""
    templates: set[str] = field(default_factory=set)
    requests: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    """The bodies of creates."""
    url: str = ""
    hidden_from: set[str] = field(default_factory=set)
    """Routes that find no sandbox, as while it changes from one state to another."""

    def __post_init__(self) -> None:
        self._ids = (f"sandbox-{number}" for number in itertools.count())

    def add(self, metadata: Mapping[str, str] | None = None, *, state: str = "running") -> str:
        """Have somebody else's sandbox there, or one of ours that the server knows nothing of."""
        now = datetime.now(UTC)
        sandbox_id = next(self._ids)
        self.sandboxes[sandbox_id] = {
            "sandboxID": sandbox_id,
            "templateID": "base",
            "clientID": "imitation",
            "startedAt": now.isoformat(),
            "endAt": (now + timedelta(minutes=15)).isoformat(),
            "envdVersion": "0.5.0",
            "cpuCount": 1,
            "memoryMB": 512,
            "diskSizeMB": 512,
            "state": state,
            "metadata": None if metadata is None else dict(metadata),
        }
        return sandbox_id

    def backend(self, **options: Any) -> E2BBackend:
        endpoint = Endpoint(
            name="imitated",
            api_url=self.url,
            api_key="key",
            sandbox_url=self.url,
            domain="localhost",
        )
        return E2BBackend(endpoint, installation_id=INSTALLATION, **options)

    @property
    def app(self) -> Starlette:
        handlers = {
            CREATE: self._create,
            CONNECT: self._connect,
            LIST: self._list,
            INFO: self._info,
            PAUSE: self._pause,
            TIMEOUT: self._set_timeout,
            METRICS: self._metrics,
            SNAPSHOT: self._snapshot,
            KILL: self._kill,
            FIND_SNAPSHOTS: self._find_snapshots,
            DELETE_TEMPLATE: self._delete_template,
            LIST_TEMPLATES: self._list_templates,
        }
        routes = [self._route(route, handler) for route, handler in handlers.items()]
        return Starlette(routes=routes)

    def _route(self, route: str, handler: Any) -> Route:
        method, _, path = route.partition(" ")

        async def answer(request: Request) -> Response:
            self.requests.append(f"{method} {request.url.path}")
            if (status := self.dialect.lacks.get(route)) is not None:
                return self._no_route(status)
            if route in self.hidden_from:
                return self._missing(request)
            answered: Response = await handler(request)
            return answered

        return Route(path, answer, methods=[method])

    def _no_route(self, status: int) -> Response:
        if self.dialect.validates_routes:
            return _error(status, _NOT_FOUND_BY_VALIDATOR)
        text = _NOT_FOUND_BY_GO if status == 404 else HTTPStatus(status).phrase
        return PlainTextResponse(text, status)

    def _find(self, request: Request) -> dict[str, Any] | None:
        return self.sandboxes.get(request.path_params["sandbox_id"])

    def _missing(self, request: Request) -> Response:
        sandbox_id = request.path_params["sandbox_id"]
        if self.dialect.names_what_is_missing:
            return _error(404, f'Sandbox "{sandbox_id}" doesn\'t exist')
        return _error(404, "not found")

    def _shown(self, sandbox: Mapping[str, Any]) -> dict[str, Any]:
        has_metadata = sandbox["metadata"] is not None and not self.dialect.drops_metadata
        metadata = sandbox["metadata"] if has_metadata else self.dialect.empty_metadata
        shown = {key: value for key, value in sandbox.items() if key != "metadata"}
        return shown if metadata is None and not has_metadata else {**shown, "metadata": metadata}

    async def _create(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        sandbox_id = self.add(body.get("metadata"))
        return JSONResponse(self._shown(self.sandboxes[sandbox_id]), 201)

    async def _connect(self, request: Request) -> Response:
        sandbox = self._find(request)
        if sandbox is None:
            return self._missing(request)
        sandbox["state"] = "running"
        return JSONResponse(self._shown(sandbox), 201)

    async def _list(self, request: Request) -> Response:
        query = request.query_params
        wanted = dict(parse_qsl(query.get("metadata", "")))
        found = [
            self._shown(one)
            for one in self.sandboxes.values()
            if self.dialect.ignores_filter or wanted.items() <= self._labels(one).items()
        ]
        start = int(query.get("nextToken", "0"))
        end = start + self.dialect.page
        return JSONResponse(found[start:end], headers=self._next(end, more=end < len(found)))

    def _next(self, end: int, *, more: bool) -> dict[str, str]:
        match self.dialect.tokens:
            case "repeated":
                return {"X-Next-Token": "0"}
            case "endless":
                return {"X-Next-Token": str(end)}
            case _:
                return {"X-Next-Token": str(end)} if more else {}

    def _labels(self, sandbox: Mapping[str, Any]) -> Mapping[str, str]:
        labels: Mapping[str, str] = self._shown(sandbox).get("metadata") or {}
        return labels

    async def _info(self, request: Request) -> Response:
        sandbox = self._find(request)
        return self._missing(request) if sandbox is None else JSONResponse(self._shown(sandbox))

    async def _pause(self, request: Request) -> Response:
        sandbox = self._find(request)
        if sandbox is None:
            return self._missing(request)
        if self.dialect.refuses_pause is not None:
            return _error(409, self.dialect.refuses_pause)
        if sandbox["state"] == "paused":
            return _error(409, "the sandbox is already paused")
        sandbox["state"] = "paused"
        return Response(status_code=204)

    async def _set_timeout(self, request: Request) -> Response:
        sandbox = self._find(request)
        if sandbox is None or sandbox["state"] == "paused":
            return self._missing(request)
        return Response(status_code=204)

    async def _metrics(self, request: Request) -> Response:
        return self._missing(request) if self._find(request) is None else JSONResponse([])

    async def _snapshot(self, request: Request) -> Response:
        sandbox = self._find(request)
        if sandbox is None:
            return self._missing(request)
        name = (await request.json()).get("name")
        snapshot_id = f"checkpoint-{len(self.snapshots)}"
        if name is None or self.dialect.drops_snapshot_name:
            self.snapshots[snapshot_id] = []
        else:
            snapshot_id = f"team/{name}:default"
            self.snapshots[snapshot_id] = [snapshot_id]
        return JSONResponse(_snapshot(snapshot_id, self.snapshots[snapshot_id]), 201)

    async def _kill(self, request: Request) -> Response:
        if self.sandboxes.pop(request.path_params["sandbox_id"], None) is None:
            return self._missing(request)
        return Response(status_code=204)

    async def _find_snapshots(self, request: Request) -> Response:
        name = request.query_params.get("name")
        every = name is None or self.dialect.ignores_snapshot_name
        found = [
            _snapshot(snapshot_id, names)
            for snapshot_id, names in self.snapshots.items()
            if every or f"team/{name}:default" in (names or ())
        ]
        start = int(request.query_params.get("nextToken", "0"))
        end = start + self.dialect.page
        return JSONResponse(found[start:end], headers=self._next(end, more=end < len(found)))

    async def _delete_template(self, request: Request) -> Response:
        template_id = request.path_params["template_id"]
        if template_id in self.templates:
            self.templates.remove(template_id)
        elif self.snapshots.pop(template_id, None) is None:
            return _error(404, f"template '{template_id}' not found")
        return Response(status_code=204)

    async def _list_templates(self, _request: Request) -> Response:
        now = datetime.now(UTC).isoformat()
        return JSONResponse([_template(one, now) for one in sorted(self.templates)])


@asynccontextmanager
async def imitating(dialect: Dialect = E2B) -> AsyncIterator[Imitation]:
    """Serve an imitation on a port of its own."""
    imitation = Imitation(dialect)
    async with serving(imitation.app) as port:
        imitation.url = f"http://127.0.0.1:{port}"
        yield imitation


def _error(status: int, message: str) -> JSONResponse:
    return JSONResponse({"code": status, "message": message}, status)


def _snapshot(snapshot_id: str, names: Sequence[str] | None) -> dict[str, Any]:
    return {"snapshotID": snapshot_id, "names": names}


def _template(template_id: str, now: str) -> dict[str, Any]:
    return {
        "templateID": template_id,
        "buildID": "build",
        "cpuCount": 1,
        "memoryMB": 512,
        "diskSizeMB": 512,
        "public": False,
        "aliases": [],
        "names": [template_id],
        "createdAt": now,
        "updatedAt": now,
        "createdBy": None,
        "lastSpawnedAt": None,
        "spawnCount": 0,
        "buildCount": 1,
        "envdVersion": "0.5.0",
        "buildStatus": "ready",
        "visibility": "private",
    }
