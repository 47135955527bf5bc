"""What Forgejo's own description of its API says of requests, as the client that is generated from it repeats it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache

from tests.server.forges.support.github_emulator import PROGRAMS
from tests.server.forges.support.scripted_server import SentRequest

CLIENT = PROGRAMS / "forgejo-js" / "dist" / "index.d.ts"

_OPERATION = re.compile(r"@request (\w+):(\S+)\n(.*?)=> Promise<", re.DOTALL)
_QUERY = re.compile(r"query\??: \{(.*?)\n {8}\}", re.DOTALL)
_INTERFACE = re.compile(r"^interface (\w+) \{\n(.*?)^\}", re.DOTALL | re.MULTILINE)
_FIELD = re.compile(r"^\s+(\w+)\??:", re.MULTILINE)
_BODY = re.compile(r"body: (\w+)")
_PARAMETER = re.compile(r"\\\{\w+\\\}")


@dataclass(frozen=True)
class Operation:
    method: str
    path: re.Pattern[str]
    query: frozenset[str] = field(default_factory=frozenset)
    body: frozenset[str] = field(default_factory=frozenset)

    def find_unknown(self, request: SentRequest) -> list[str]:
        sent = request.json() if request.body else {}
        unknown = {*request.query} - self.query | {*sent} - self.body
        return [f"{request.method} {request.path}: {name}" for name in sorted(unknown)]


@cache
def read_operations() -> Sequence[Operation]:
    text = CLIENT.read_text()
    interfaces = {name: frozenset(_FIELD.findall(body)) for name, body in _INTERFACE.findall(text)}
    return [_operation(found, interfaces) for found in _OPERATION.finditer(text)]


def find_unknown(request: SentRequest) -> list[str]:
    """Name what a request has that the description has not: its path, or fields of its query and body."""
    fitting = [
        each
        for each in read_operations()
        if each.method == request.method and each.path.fullmatch(request.path)
    ]
    if not fitting:
        return [f"{request.method} {request.path}"]
    return min((each.find_unknown(request) for each in fitting), key=len)


def _operation(found: re.Match[str], interfaces: dict[str, frozenset[str]]) -> Operation:
    method, path, signature = found.groups()
    query, body = _QUERY.search(signature), _BODY.search(signature)
    return Operation(
        method=method,
        path=re.compile(_PARAMETER.sub("[^/]+", re.escape(path))),
        query=frozenset(_FIELD.findall(query[1])) if query else frozenset(),
        body=interfaces.get(body[1], frozenset()) if body else frozenset(),
    )
