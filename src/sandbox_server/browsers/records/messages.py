"""CDP messages between drivers and browsers: collected as they pass, and read as Browserbase's logs have them.

Collecting costs the drivers an append; the messages are parsed when the log is read.
"""

import json
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from sandbox_server.browsers.cdp.policy import Direction

LONGEST_BODY = 8 * 1024
"""Of longer messages the beginning is kept, and the end, which has the id of the target's session."""

_TAIL = 256
_MOST_PENDING = 8 * 2**20
_METHOD = re.compile(r'"method":\s*"([A-Za-z]+\.[A-Za-z]+)"')
_ID = re.compile(r'"id":\s*([0-9]{1,15})\b')
_TARGET_SESSION = re.compile(r'"sessionId":\s*"([A-Za-z0-9]{1,64})"\}?\s*\Z')


@dataclass(frozen=True)
class CdpMessage:
    """A message as it was collected."""

    at_ms: int
    connection: str
    direction: Direction
    target_id: str | None
    text: str
    tail: str = ""


class MessageBuffer:
    """Collects the messages of a session until they are stored."""

    def __init__(self) -> None:
        self._messages: list[CdpMessage] = []
        self._size = 0

    def __bool__(self) -> bool:
        return bool(self._messages)

    def add(
        self,
        payload: bytes,
        *,
        at_ms: int,
        connection: str,
        direction: Direction,
        target_id: str | None,
    ) -> None:
        """Add a message, unless too many wait for the database."""
        head, tail = payload, b""
        if len(payload) > LONGEST_BODY + _TAIL:
            head, tail = payload[:LONGEST_BODY], payload[-_TAIL:]
        if self._size > _MOST_PENDING:
            return
        self._size += len(head)
        self._messages.append(
            CdpMessage(
                at_ms,
                connection,
                direction,
                target_id,
                head.decode(errors="replace"),
                tail.decode(errors="replace"),
            )
        )

    def take(self) -> list[CdpMessage]:
        taken, self._messages, self._size = self._messages, [], 0
        return taken


def pack_messages(messages: Iterable[CdpMessage]) -> bytes:
    lines = (
        json.dumps(
            [each.at_ms, each.connection, each.direction, each.target_id, each.text, each.tail]
        )
        for each in messages
    )
    return zlib.compress("\n".join(lines).encode(), 6)


def unpack_messages(content: bytes) -> Iterator[CdpMessage]:
    for line in zlib.decompress(content).split(b"\n"):
        at_ms, connection, direction, target_id, text, tail = json.loads(line)
        yield CdpMessage(at_ms, connection, Direction(direction), target_id, text, tail)


@dataclass
class _Content:
    """Fields of a CDP message; a shortened message has no others."""

    method: str | None
    number: int | None
    target_session: str | None
    fields: Mapping[str, Any] = field(default_factory=dict)


class CommandLog:
    """Pairs commands with their responses, and finds the pages of messages."""

    def __init__(self, session_id: str, pages: Mapping[str, int]) -> None:
        self._session_id = session_id
        self._numbers = dict(pages)
        self._attached: dict[tuple[str, str], int] = {}
        self._open: dict[tuple[str, str | None, int], dict[str, Any]] = {}

    def read(self, messages: Iterable[CdpMessage]) -> list[dict[str, Any]]:
        """List commands with their responses, and events, in the order of the first message of each."""
        entries: list[dict[str, Any]] = []
        for message in messages:
            content = _parse(message)
            page = self._page_of(message, content)
            if message.direction is Direction.BROWSER and content.number is not None:
                self._complete(message, content)
            elif content.method is not None:
                entry = self._describe(message, content, page)
                entries.append(entry)
                if message.direction is Direction.CLIENT and content.number is not None:
                    self._open[message.connection, content.target_session, content.number] = entry
            if content.method == "Target.attachedToTarget":
                self._attach(message, content, page)
        return entries

    def _describe(self, message: CdpMessage, content: _Content, page: int) -> dict[str, Any]:
        params = content.fields.get("params")
        params = params if isinstance(params, dict) else {}
        entry = {
            "method": content.method,
            "pageId": page,
            "sessionId": self._session_id,
            "timestamp": message.at_ms,
            "request": {"params": params, "rawBody": message.text, "timestamp": message.at_ms},
        }
        for name in ("frameId", "loaderId"):
            if isinstance(params.get(name), str):
                entry[name] = params[name]
        return entry

    def _complete(self, message: CdpMessage, content: _Content) -> None:
        assert content.number is not None
        key = message.connection, content.target_session, content.number
        entry = self._open.pop(key, None)
        if entry is None:
            return
        result = content.fields.get("result", content.fields.get("error"))
        entry["response"] = {
            "rawBody": message.text,
            "result": result if isinstance(result, dict) else {},
            "timestamp": message.at_ms,
        }

    def _page_of(self, message: CdpMessage, content: _Content) -> int:
        if message.target_id is not None:
            return self._number(message.target_id)
        if content.target_session is None:
            return 0
        return self._attached.get((message.connection, content.target_session), 0)

    def _attach(self, message: CdpMessage, content: _Content, page: int) -> None:
        params = content.fields.get("params")
        if not isinstance(params, dict):
            return
        target, attached = params.get("targetInfo"), params.get("sessionId")
        if isinstance(target, dict) and isinstance(attached, str):
            is_page = target.get("type") == "page"
            number = self._number(str(target.get("targetId"))) if is_page else page
            self._attached[message.connection, attached] = number

    def _number(self, target_id: str) -> int:
        return self._numbers.setdefault(target_id, len(self._numbers))


def _parse(message: CdpMessage) -> _Content:
    if not message.tail:
        try:
            fields = json.loads(message.text)
        except (ValueError, RecursionError):
            fields = None
        if isinstance(fields, dict):
            number = fields.get("id")
            return _Content(
                method=_text(fields.get("method")),
                number=number if isinstance(number, int) else None,
                target_session=_text(fields.get("sessionId")),
                fields=fields,
            )
    return _skim(message)


def _skim(message: CdpMessage) -> _Content:
    """Find the fields of a shortened message, whose JSON cannot be parsed."""
    method, number = _METHOD.search(message.text[:512]), _ID.search(message.text[:64])
    session = _TARGET_SESSION.search(message.tail)
    return _Content(
        method=method and method[1],
        number=int(number[1]) if number else None,
        target_session=session and session[1],
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
