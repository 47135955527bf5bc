"""What Forgejo's own description of its API says of requests, as the client that is generated from it repeats it."""

import re
from collections.abc import Sequence
from functools import cache

from tests.server.forges.support.described_api import Operation
from tests.server.forges.support.github_emulator import PROGRAMS

CLIENT = PROGRAMS / "forgejo-js" / "dist" / "index.d.ts"

_OPERATION = re.compile(r"@request (\w+):(\S+)\n(.*?)=> Promise<", re.DOTALL)
_QUERY = re.compile(r"query\??: \{(.*?)\n {8}\}", re.DOTALL)
_INTERFACE = re.compile(r"^interface (\w+) \{\n(.*?)^\}", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"^\s+(\w+)\??:", re.MULTILINE)
_BODY = re.compile(r"body: (\w+)")
_PARAMETER = re.compile(r"\\\{\w+\\\}")


@cache
def read_operations() -> Sequence[Operation]:
    text = CLIENT.read_text()
    interfaces = {name: frozenset(_FIELD.findall(body)) for name, body in _INTERFACE.findall(text)}
    return [_operation(found, interfaces) for found in _OPERATION.finditer(text)]


def _operation(found: re.Match[str], interfaces: dict[str, frozenset[str]]) -> Operation:
    method, path, signature = found.groups()
    query, body = _QUERY.search(signature), _BODY.search(signature)
    return Operation(
        method=method,
        path=re.compile(_PARAMETER.sub("[^/]+", re.escape(path))),
        query=frozenset(_FIELD.findall(query[1])) if query else frozenset(),
        body=interfaces.get(body[1], frozenset()) if body else frozenset(),
    )
