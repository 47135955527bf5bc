"""Requests that are compared with what the description of an API, or a client of it, has."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.server.forges.support.scripted_server import SentRequest


@dataclass(frozen=True)
class Operation:
    method: str
    path: re.Pattern[str]
    query: frozenset[str] = field(default_factory=frozenset)
    body: frozenset[str] = field(default_factory=frozenset)

    def fits(self, request: SentRequest) -> bool:
        return self.method == request.method and self.path.fullmatch(request.path) is not None

    def find_unknown(self, request: SentRequest) -> list[str]:
        sent = request.json() if request.body else {}
        unknown = {*request.query} - self.query | {*sent} - self.body
        return [f"{request.method} {request.path}: {name}" for name in sorted(unknown)]


def find_unknown(request: SentRequest, operations: Iterable[Operation]) -> list[str]:
    """Name what a request has that no operation has: its path, or fields of its query and body."""
    fitting = [each for each in operations if each.fits(request)]
    if not fitting:
        return [f"{request.method} {request.path}"]
    return min((each.find_unknown(request) for each in fitting), key=len)
