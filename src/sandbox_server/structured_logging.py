import json
import logging
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Literal

_context: ContextVar[Mapping[str, str]] = ContextVar("log_context", default=MappingProxyType({}))

# Our code does not log these, but an error of a library may contain one.
_SECRETS = re.compile(r"\b(?:sb[xtl]_|e2b_|sk_)[\w-]{16,}|(?<=://)[^\s/@]+(?=@)")
# Their logs of each call are of no use here, and some contain headers and URLs.
_LIBRARIES = (
    *("alembic", "asyncio", "e2b", "httpcore", "httpx", "pyqwest"),
    *("sqlalchemy", "sse_starlette", "uvicorn", "websockets"),
)


@contextmanager
def log_context(**fields: str) -> Iterator[None]:
    """Add fields to every log line of the block, including tasks started in it."""
    token = _context.set({**_context.get(), **fields})
    try:
        yield
    finally:
        _context.reset(token)


def add_to_log_context(**fields: str) -> None:
    """Add fields to every later log line of this task."""
    _context.set({**_context.get(), **fields})


class TextFormatter(logging.Formatter):
    """`2026-01-01T00:00:00.000+00:00 INFO scheduler.worker job failed kind=… request_id=…`."""

    def format(self, record: logging.LogRecord) -> str:
        fields = [_instant(record), record.levelname, _short(record.name), record.getMessage()]
        fields += [f"{name}={_quoted(value)}" for name, value in _context_of(record).items()]
        if record.exc_info:
            fields.append("\n" + self.formatException(record.exc_info))
        return _without_secrets(" ".join(fields))


class JsonFormatter(logging.Formatter):
    """One object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "at": _instant(record),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **_context_of(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return _without_secrets(json.dumps(line, default=str))


def configure_logging(
    level: str = "INFO", *, style: Literal["text", "json"] = "text", access_log: bool = True
) -> None:
    """Write the log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(TextFormatter() if style == "text" else JsonFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    for name in _LIBRARIES:
        logging.getLogger(name).setLevel(logging.WARNING)
    logging.getLogger("sandbox_server.access").disabled = not access_log


def _instant(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _short(name: str) -> str:
    return name.removeprefix("sandbox_server.")


def _context_of(record: logging.LogRecord) -> dict[str, object]:
    return {**_context.get(), **getattr(record, "context", {})}


def _quoted(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and not set(text) & set(' "') else json.dumps(text)


def _without_secrets(text: str) -> str:
    return _SECRETS.sub("***", text)
