"""Errors as answers: RFC 9457 problem+json, made in this one place."""

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from socket import gaierror
from typing import Any, cast

from fastapi import FastAPI
from fastapi.exceptions import (
    RequestValidationError,
    ValidationException,
    WebSocketRequestValidationError,
)
from fastapi.routing import iter_route_contexts
from sqlalchemy.exc import TimeoutError as PoolExhausted
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import JSONResponse

from sandbox_client.models import ERROR_CODES, InputProblem, Problem
from sandbox_server.domain import errors
from sandbox_server.domain.errors import SandboxError
from sandbox_server.http.faults import (
    INVALID,
    MALFORMED,
    NO_DATABASE,
    NO_ROUTE,
    NOT_JSON,
    TOO_LARGE,
    UNKNOWN,
    WRONG_METHOD,
    ExchangeError,
    Fault,
)

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"

_FAULTS = {
    fault.status: fault
    for fault in (MALFORMED, NO_ROUTE, WRONG_METHOD, TOO_LARGE, NOT_JSON, INVALID, UNKNOWN)
}
# Of PostgreSQL's classes of errors: connection, rollback, resources, an operator's intervention.
_PASSING = frozenset({"08", "40", "53", "57"})
_RETRY_AFTER_OUTAGE = {"Retry-After": "2"}


class ProblemResponse(JSONResponse):
    media_type = MEDIA_TYPE


def install(app: FastAPI) -> None:
    """Render every error here."""
    app.add_exception_handler(SandboxError, _sandbox_error)
    app.add_exception_handler(RequestValidationError, _invalid)
    app.add_exception_handler(WebSocketRequestValidationError, _invalid)
    app.add_exception_handler(HTTPException, _http_error)


def status_of(error: type[SandboxError]) -> int:
    return ERROR_CODES[error.code].status


def render(error: Exception, *, request_id: str) -> ProblemResponse:
    """Answer an error; what an unknown one says is for the log alone."""
    if isinstance(error, SandboxError):
        return _render_known(error, request_id)
    if isinstance(error, ExchangeError):
        return render_fault(error.fault, request_id=request_id, detail=str(error))
    if _is_outage(error):
        log.warning("database does not answer error=%r", error)
        return render_fault(NO_DATABASE, request_id=request_id, headers=_RETRY_AFTER_OUTAGE)
    log.error("request failed", exc_info=error)
    return render_fault(UNKNOWN, request_id=request_id)


def render_fault(
    fault: Fault,
    *,
    request_id: str,
    detail: str | None = None,
    headers: Mapping[str, str] | None = None,
    parts: list[InputProblem] | None = None,
) -> ProblemResponse:
    problem = Problem(
        type=_type_of(fault.code),
        title=fault.title,
        status=fault.status,
        code=fault.code,
        detail=detail or fault.detail,
        remediation=fault.remediation,
        request_id=request_id,
        errors=parts,
    )
    return _respond(problem, headers)


def _render_known(error: SandboxError, request_id: str) -> ProblemResponse:
    entry = ERROR_CODES[error.code]
    problem = Problem(
        type=_type_of(entry.code),
        title=entry.title,
        status=entry.status,
        code=entry.code,
        detail=str(error),
        remediation=error.remediation,
        request_id=request_id,
    )
    return _respond(problem, dict(_headers_of(error)))


def _headers_of(error: SandboxError) -> Iterator[tuple[str, str]]:
    if error.retry_after is not None:
        yield "Retry-After", str(max(1, math.ceil(error.retry_after.total_seconds())))
    match error:
        case errors.Unauthenticated():
            yield "WWW-Authenticate", "Bearer"
        case errors.FileChanged(etag=str(etag)):
            yield "ETag", etag
        case errors.RangeOutside():
            yield "Content-Range", f"bytes */{error.size}"


def _respond(problem: Problem, headers: Mapping[str, str] | None) -> ProblemResponse:
    content = problem.model_dump(exclude_none=True)
    return ProblemResponse(content, status_code=problem.status, headers=headers)


def _type_of(code: str) -> str:
    return f"urn:sandbox-server:problem:{code}"


def _is_outage(error: Exception) -> bool:
    """Return whether it is a transient failure of the database."""
    sqlstate = getattr(getattr(error, "orig", error), "sqlstate", None) or ""
    return sqlstate[:2] in _PASSING or isinstance(error, PoolExhausted | ConnectionError | gaierror)


async def _sandbox_error(connection: HTTPConnection, error: Exception) -> ProblemResponse:
    return _render_known(cast("SandboxError", error), connection.state.request_id)


async def _http_error(connection: HTTPConnection, error: Exception) -> ProblemResponse:
    known = cast("HTTPException", error)
    request_id = connection.state.request_id
    if isinstance(known.__cause__, ExchangeError):  # FastAPI wraps what ends the reading of a body
        return render(known.__cause__, request_id=request_id)
    if known.status_code == WRONG_METHOD.status:
        allowed = {"Allow": ", ".join(sorted(_methods_at(connection)))}
        return render_fault(WRONG_METHOD, request_id=request_id, headers=allowed)
    return render_fault(_FAULTS.get(known.status_code, UNKNOWN), request_id=request_id)


def _methods_at(connection: HTTPConnection) -> set[str]:
    """Collect what all routes of this path know; each by itself names only its own."""
    path = connection.scope["path"]
    routes = iter_route_contexts(connection.app.routes)
    return {
        method
        for route in routes
        if route.path_regex.match(path) is not None
        for method in route.methods or ()
    }


async def _invalid(connection: HTTPConnection, error: Exception) -> ProblemResponse:
    known = cast("ValidationException", error)
    request_id = connection.state.request_id
    if isinstance(
        getattr(known, "body", None), bytes
    ):  # FastAPI does not parse a body without a JSON content type
        return render_fault(NOT_JSON, request_id=request_id)
    return render_fault(INVALID, request_id=request_id, parts=list(_located(known.errors())))


def _located(found: Iterable[Mapping[str, Any]]) -> Iterable[InputProblem]:
    for error in found:
        source, *path = error["loc"]
        detail = error["msg"].removeprefix("Value error, ")
        if source == "body":
            yield InputProblem(detail=detail, pointer=_pointer(path))
        else:
            yield InputProblem(detail=detail, parameter=".".join(map(str, path)))


def _pointer(path: list[str | int]) -> str:
    steps = (str(step).replace("~", "~0").replace("/", "~1") for step in path)
    return "#" + "".join(f"/{step}" for step in steps)
