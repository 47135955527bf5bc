"""Events of pages as entries of a session's log. Pure functions over the events of CDP."""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

_LONGEST_TEXT = 4000
_LONGEST_URL = 2000
_MOST_REQUESTS = 2000


class EntryKind(StrEnum):
    CONSOLE = "console"
    NETWORK = "network"
    ERROR = "error"
    PAGE = "page"
    CAPTCHA = "captcha"


@dataclass(frozen=True, kw_only=True)
class LogEntry:
    """An entry of the log of a session."""

    at_ms: int
    page: int
    kind: EntryKind
    text: str
    level: str | None = None
    url: str | None = None
    method: str | None = None
    status: int | None = None
    resource_type: str | None = None
    duration_ms: int | None = None


def pack_entries(entries: Iterable[LogEntry]) -> bytes:
    lines = (
        json.dumps({k: v for k, v in asdict(each).items() if v is not None}) for each in entries
    )
    return zlib.compress("\n".join(lines).encode(), 6)


def unpack_entries(content: bytes) -> Iterator[LogEntry]:
    for line in zlib.decompress(content).split(b"\n"):
        fields = json.loads(line)
        yield LogEntry(**{**fields, "kind": EntryKind(fields["kind"])})


@dataclass
class _Request:
    method: str
    url: str
    resource_type: str | None
    began_s: float
    status: int | None = None
    text: str = ""


class PageEvents:
    """Reads the events of one page. A request becomes an entry when it has ended."""

    def __init__(self, page: int) -> None:
        self._page = page
        self._requests: dict[str, _Request] = {}

    def read(self, method: str, params: Mapping[str, Any], *, at_ms: int) -> LogEntry | None:
        """Read an event; None if it is not, or not yet, an entry."""
        match method:
            case "Runtime.consoleAPICalled":
                return self._entry(
                    at_ms,
                    EntryKind.CONSOLE,
                    " ".join(_describe(each) for each in _list(params.get("args"))),
                    level=_string(params.get("type")),
                )
            case "Runtime.exceptionThrown":
                return self._exception(_dict(params.get("exceptionDetails")), at_ms)
            case "Log.entryAdded":
                return self._browser_entry(_dict(params.get("entry")), at_ms)
            case "Page.frameNavigated":
                return self._navigation(_dict(params.get("frame")), at_ms)
            case "Inspector.targetCrashed":
                return self._entry(at_ms, EntryKind.ERROR, "The page has crashed.", level="error")
        return self._request_event(method, params, at_ms) if "Network." in method else None

    def _entry(self, at_ms: int, kind: EntryKind, text: str, **fields: Any) -> LogEntry:
        return LogEntry(
            at_ms=at_ms, page=self._page, kind=kind, text=text[:_LONGEST_TEXT], **fields
        )

    def _exception(self, details: Mapping[str, Any], at_ms: int) -> LogEntry:
        thrown = _dict(details.get("exception"))
        text = _string(thrown.get("description")) or _string(details.get("text")) or "Exception"
        return self._entry(at_ms, EntryKind.ERROR, text, level="error", url=_url(details))

    def _browser_entry(self, entry: Mapping[str, Any], at_ms: int) -> LogEntry:
        level = _string(entry.get("level"))
        kind = EntryKind.ERROR if level == "error" else EntryKind.CONSOLE
        return self._entry(
            at_ms, kind, _string(entry.get("text")) or "", level=level, url=_url(entry)
        )

    def _navigation(self, frame: Mapping[str, Any], at_ms: int) -> LogEntry | None:
        if "parentId" in frame:
            return None
        url = _url(frame) or ""
        return self._entry(at_ms, EntryKind.PAGE, f"The page navigated to {url}.", url=url)

    def _request_event(self, method: str, params: Mapping[str, Any], at_ms: int) -> LogEntry | None:
        number = str(params.get("requestId"))
        if method == "Network.requestWillBeSent":
            redirected = self._redirect(number, params, at_ms)
            self._begin(number, params)
            return redirected
        request = self._requests.get(number)
        if request is None:
            return None
        if method == "Network.responseReceived":
            self._respond(request, _dict(params.get("response")))
            return None
        if method == "Network.loadingFailed":
            request.text = _string(params.get("errorText")) or "failed"
        elif method != "Network.loadingFinished":
            return None
        del self._requests[number]
        return self._request_entry(request, params, at_ms)

    def _begin(self, number: str, params: Mapping[str, Any]) -> None:
        sent = _dict(params.get("request"))
        if len(self._requests) >= _MOST_REQUESTS:
            self._requests.pop(next(iter(self._requests)))
        self._requests[number] = _Request(
            method=_string(sent.get("method")) or "GET",
            url=_url(sent) or "",
            resource_type=_string(params.get("type")),
            began_s=_seconds(params),
        )

    def _redirect(self, number: str, params: Mapping[str, Any], at_ms: int) -> LogEntry | None:
        request = self._requests.pop(number, None)
        if request is None or "redirectResponse" not in params:
            return None
        self._respond(request, _dict(params["redirectResponse"]))
        return self._request_entry(request, params, at_ms)

    def _respond(self, request: _Request, response: Mapping[str, Any]) -> None:
        status = response.get("status")
        request.status = status if isinstance(status, int) else None
        request.text = _string(response.get("statusText")) or ""

    def _request_entry(self, request: _Request, params: Mapping[str, Any], at_ms: int) -> LogEntry:
        return self._entry(
            at_ms,
            EntryKind.NETWORK,
            request.text,
            url=request.url,
            method=request.method,
            status=request.status,
            resource_type=request.resource_type,
            duration_ms=max(0, round((_seconds(params) - request.began_s) * 1000)),
        )


def _describe(argument: object) -> str:
    value = _dict(argument)
    if "value" in value:
        given = value["value"]
        return given if isinstance(given, str) else json.dumps(given)
    return _string(value.get("description")) or _string(value.get("type")) or ""


def _seconds(params: Mapping[str, Any]) -> float:
    instant = params.get("timestamp")
    return float(instant) if isinstance(instant, int | float) else 0.0


def _url(fields: Mapping[str, Any]) -> str | None:
    url = _string(fields.get("url"))
    return None if url is None else url[:_LONGEST_URL]


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _dict(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []
