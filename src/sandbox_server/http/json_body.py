import json
import math
from collections.abc import Callable, Coroutine
from typing import Any

from fastapi import Request, Response
from fastapi.routing import APIRoute

from sandbox_server.http.faults import Malformed


class JsonRoute(APIRoute):
    """Reads JSON as the standard has it, so that what we understand is what a proxy before us understood."""

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
    """Read one JSON document; refuses fields that are there twice, and numbers that are none."""
    try:
        return json.loads(
            body.decode(),
            object_pairs_hook=_read_object,
            parse_float=_read_float,
            parse_constant=_refuse_constant,
        )
    except json.JSONDecodeError as error:
        found = f"{error.msg} at line {error.lineno}, column {error.colno}"
    except UnicodeDecodeError:
        found = "it is not UTF-8"
    except RecursionError:
        found = "it is nested too deeply"
    except ValueError as error:  # ours, or of a number with thousands of digits
        found = str(error) if isinstance(error, _Refused) else "a number is too long"
    raise Malformed(f"The body cannot be read as JSON: {found}.")


class _Refused(ValueError):
    """It is no JSON, though Python would read it."""


def _read_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise _Refused("an object has a field twice")
    return fields


def _read_float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise _Refused("a number is too large")
    return number


def _refuse_constant(name: str) -> None:
    raise _Refused(f"{name} is no number")
