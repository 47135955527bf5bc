import re
from dataclasses import dataclass
from functools import cache
from typing import Any

import httpx

from sandbox_server.app import describe
from sandbox_server.http.problems import MEDIA_TYPE
from sandbox_server.openapi import codes_of


@dataclass(frozen=True)
class Operation:
    """One operation of the API, as its description has it."""

    method: str
    path: str
    described: dict[str, Any]
    schemas: dict[str, Any]

    @property
    def parameters(self):
        return self.described.get("parameters", [])

    @property
    def fields(self):
        return self._body.get("properties", {})

    @property
    def required(self):
        """Give an example of each field that a body must have."""
        named = self._body.get("required", ())
        return {name: _example(self._resolved(self.fields[name])) for name in named}

    def _resolved(self, schema):
        return self.schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema

    @property
    def query(self):
        """Give an example of each parameter that a query must have."""
        return {
            each["name"]: str(_example(each["schema"]))
            for each in self.parameters
            if each["in"] == "query" and each["required"]
        }

    @property
    def _body(self):
        content = self.described.get("requestBody", {}).get("content", {})
        if "application/json" not in content:
            return {}
        schema = content["application/json"]["schema"]
        return self._resolved(schema.get("anyOf", [schema])[0])


async def require_described(response: httpx.Response) -> None:
    """Refuse an answer that the description of its operation does not know."""
    operation = _find(response.request.method, response.request.url.path)
    if operation is None or "default" in operation["responses"]:
        return
    where = f"{operation['operationId']} answered {response.status_code}"
    assert str(response.status_code) in operation["responses"], where
    if response.headers.get("content-type") == MEDIA_TYPE:
        await response.aread()
        code = response.json()["code"]
        assert code in codes_of(operation)[response.status_code], f"{where} {code}"


def _find(method: str, path: str) -> dict[str, Any] | None:
    found = (
        item[method.lower()]
        for pattern, item in _patterns()
        if method.lower() in item and pattern.fullmatch(path)
    )
    return next(found, None)


@cache
def _patterns():
    return [
        (re.compile(re.sub(r"\{\w+\}", "[^/]+", path)), item)
        for path, item in description()["paths"].items()
    ]


@cache
def description():
    """Describe the API; that takes half a second of a processor."""
    return describe()


def list_operations():
    schemas = description()["components"]["schemas"]
    return [
        Operation(method, path, described, schemas)
        for path, item in description()["paths"].items()
        for method, described in item.items()
    ]


def _example(schema):
    if "enum" in schema:
        return schema["enum"][0]
    return {"string": "x", "integer": 80, "number": 60, "boolean": True}.get(
        schema.get("type"), "x"
    )
