"""The API's own description: what every operation has in common is added here once."""

from collections.abc import Iterator
from typing import Any

from fastapi import FastAPI

from sandbox_client.models import Problem
from sandbox_server.api.authentication import is_open
from sandbox_server.api.problems import MEDIA_TYPE
from sandbox_server.api.ticket_reach import takes_tickets

_SCHEMAS = "#/components/schemas/"
_PROBLEM = {"$ref": "#/components/responses/Problem"}
_KEYED = ("401", "403", "429")
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
    """Tells in its description who may call, and how every operation fails."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            _complete(super().openapi())
        return super().openapi()


def _complete(description: dict[str, Any]) -> None:
    components = description.setdefault("components", {})
    components["securitySchemes"] = _SECURITY_SCHEMES
    components["responses"] = {"Problem": _problem_response()}
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):  # FastAPI's own, which we never answer
        schemas.pop(name, None)
    problem = Problem.model_json_schema(ref_template=f"{_SCHEMAS}{{model}}")
    schemas.update(problem.pop("$defs"), Problem=problem)
    for path, method, operation in _operations(description):
        _complete_operation(operation, security=_security_of(path, method))


def _security_of(path: str, method: str) -> list[dict[str, list[str]]]:
    if is_open(path):
        return []
    return [*_SECURITY, _TICKET] if takes_tickets(path, method) else _SECURITY


def _complete_operation(operation: dict[str, Any], *, security: list[dict[str, list[str]]]) -> None:
    responses = operation["responses"]
    if "422" in responses:
        responses["422"] = _PROBLEM
    responses["default"] = _PROBLEM
    operation["security"] = security
    if security:
        responses.update(dict.fromkeys(_KEYED, _PROBLEM))


def _operations(description: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in description["paths"].items():
        for method, operation in item.items():
            yield path, method, operation


def _problem_response() -> dict[str, Any]:
    return {
        "description": "What went wrong (RFC 9457); `code` says it to programs.",
        "headers": {
            "Retry-After": {
                "description": "After how many seconds to try again, where that can help.",
                "schema": {"type": "integer"},
            }
        },
        "content": {MEDIA_TYPE: {"schema": {"$ref": f"{_SCHEMAS}Problem"}}},
    }
