"""The OpenAPI document: adds security schemes and error responses to every operation."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute

from sandbox_client.models import Problem
from sandbox_server.access.authentication import is_public
from sandbox_server.access.ticket_scope import accepts_tickets
from sandbox_server.domain import errors
from sandbox_server.http.declared_errors import Failure, failures_of
from sandbox_server.http.faults import (
    HEAD_TOO_LARGE,
    INVALID,
    MALFORMED,
    NO_DATABASE,
    NO_ROUTE,
    NOT_JSON,
    TOO_LARGE,
    UNKNOWN,
    Fault,
)
from sandbox_server.http.problems import MEDIA_TYPE, status_of

_SCHEMAS = "#/components/schemas/"
_PROBLEM = "#/components/responses/Problem"
_CODE = re.compile(r"`([a-z-]+)`")

# Errors of the middleware.
_OF_ALL: tuple[Failure, ...] = (MALFORMED, HEAD_TOO_LARGE, UNKNOWN)
_OF_KEYED: tuple[Failure, ...] = (
    *(errors.Unauthenticated, errors.TicketRefused, errors.LoginRefused, errors.RateLimited),
    *(errors.TooManyAtOnce, errors.TooManyStreams, NO_DATABASE),
)
_OF_JSON: tuple[Failure, ...] = (TOO_LARGE, NOT_JSON)

_SECURITY: list[dict[str, list[str]]] = [{"bearer": []}, {"api_key": []}]
_TICKET: dict[str, list[str]] = {"ticket": []}
_SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "An API key, `sbx_…`."},
    "api_key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
    "ticket": {
        "type": "apiKey",
        "in": "query",
        "name": "ticket",
        "description": "A ticket, `sbt_…`, for an EventSource or a WebSocket of a browser.",
    },
}


class DescribedApi(FastAPI):
    """Adds authentication and possible errors to the OpenAPI document."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            _complete(super().openapi(), self.routes)
        return super().openapi()


def codes_of(operation: Mapping[str, Any]) -> dict[int, list[str]]:
    """List an operation's documented problem codes by status."""
    return {
        int(status): _CODE.findall(response["description"])
        for status, response in operation["responses"].items()
        if response.get("$ref") == _PROBLEM
    }


def _complete(description: dict[str, Any], routes: Iterable[BaseRoute]) -> None:
    components = description.setdefault("components", {})
    components["securitySchemes"] = _SECURITY_SCHEMES
    components["responses"] = {"Problem": _problem_response()}
    schemas = components.setdefault("schemas", {})
    for name in (
        "HTTPValidationError",
        "ValidationError",
    ):  # FastAPI's error models, which are not used
        schemas.pop(name, None)
    problem = Problem.model_json_schema(ref_template=f"{_SCHEMAS}{{model}}")
    schemas.update(problem.pop("$defs"), Problem=problem)
    declared = dict(_declarations(routes))
    for schema in schemas.values():
        _drop_titles(schema)
    for path, method, operation in _operations(description):
        operation["security"] = _security_of(path, method)
        for parameter in operation.get("parameters", []):
            for duplicate in ("title", "description"):
                parameter["schema"].pop(duplicate, None)
        own = declared.get((path, method), [])
        _add_failures(operation, [*own, *_common_failures(path, operation)])


def _drop_titles(schema: dict[str, Any]) -> None:
    """Remove titles, which only repeat the field's name."""
    for field in schema.get("properties", {}).values():
        field.pop("title", None)


def _declarations(routes: Iterable[BaseRoute]) -> Iterator[tuple[tuple[str, str], list[Failure]]]:
    for route in routes:
        if isinstance(route, APIRoute):
            for method in route.methods or ():
                yield (route.path_format, method.lower()), list(failures_of(route))


def _security_of(path: str, method: str) -> list[dict[str, list[str]]]:
    if is_public(path):
        return []
    return [*_SECURITY, _TICKET] if accepts_tickets(path, method) else _SECURITY


def _common_failures(path: str, operation: dict[str, Any]) -> Iterator[Failure]:
    yield from _OF_ALL
    if operation["security"]:
        yield from _OF_KEYED
    if "application/json" in operation.get("requestBody", {}).get("content", {}):
        yield from _OF_JSON
    if "422" in operation["responses"]:
        yield INVALID
    if "{" in path:  # an invalid parameter may make the path match no route
        yield NO_ROUTE


def _add_failures(operation: dict[str, Any], failures: Iterable[Failure]) -> None:
    codes: defaultdict[int, set[str]] = defaultdict(set)
    for failure in failures:
        codes[_status_of(failure)].add(failure.code)
    responses = {
        str(status): {
            "$ref": _PROBLEM,
            "description": ", ".join(f"`{code}`" for code in sorted(of)),
        }
        for status, of in codes.items()
    }
    operation["responses"] = dict(sorted({**operation["responses"], **responses}.items()))


def _status_of(failure: Failure) -> int:
    return failure.status if isinstance(failure, Fault) else status_of(failure)


def _operations(description: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in description["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def _problem_response() -> dict[str, Any]:
    return {
        "description": "Error (RFC 9457); `code` identifies it for programs.",
        "headers": {
            "Retry-After": {
                "description": "Seconds after which to retry, if a retry can succeed.",
                "schema": {"type": "integer"},
            }
        },
        "content": {MEDIA_TYPE: {"schema": {"$ref": f"{_SCHEMAS}Problem"}}},
    }
