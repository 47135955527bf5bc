import json
import math
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from sandbox_server.http.faults import Malformed


class JsonRoute(APIRoute):
    """Parses JSON bodies strictly, so that a proxy in front of this server cannot read them differently."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()
        if self.body_field is None:
            return handle

        async def handle_strictly(request: Request) -> Response:
            return await handle(_StrictRequest(request.scope, request.receive))

        return handle_strictly


class _StrictRequest(Request):
    async def json(self) -> Any:
        return read_json(await self.body())


def read_json(body: bytes) -> Any:
    """Parse one JSON document; rejects duplicate fields, NaN and infinities."""
    try:
        return json.loads(
            body.decode(),
            object_pairs_hook=_read_object,
            parse_float=_read_float,
            parse_constant=_refuse_constant,
        )
    except json.JSONDecodeError as error:
        reason = f"{error.msg} at line {error.lineno}, column {error.colno}"
    except UnicodeDecodeError:
        reason = "not UTF-8"
    except RecursionError:
        reason = "nested too deeply"
    except ValueError as error:  # ours, or a number with thousands of digits
        reason = str(error) if isinstance(error, _NotStrictJson) else "number too long"
    raise Malformed(f"The body is not valid JSON: {reason}.")


class _NotStrictJson(ValueError):
    """Not valid JSON, although Python's parser accepts it."""


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _NotStrictJson("duplicate field in an object")
    return fields


def _read_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _NotStrictJson("number too large")
    return number


def _refuse_constant(name: str) -> None:
    raise _NotStrictJson(f"{name} is not a JSON number")
