import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any


class Logger:
    """Logs events with key=value context."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(name)

    def debug(self, event: str, **context: object) -> None:
        self._logger.debug(event, extra={"context": context})

    def info(self, event: str, **context: object) -> None:
        self._logger.info(event, extra={"context": context})

    def warning(self, event: str, **context: object) -> None:
        self._logger.warning(event, extra={"context": context})

    def error(self, event: str, **context: object) -> None:
        self._logger.error(event, extra={"context": context})

    def exception(self, event: str, **context: object) -> None:
        """Log the event with the traceback of the exception being handled."""
        self._logger.exception(event, extra={"context": context})  # noqa: LOG004


def get_logger(name: str) -> Logger:
    return Logger(name)


class KeyValueFormatter(logging.Formatter):
    """`2026-01-01T00:00:00Z INFO sandbox started id=… ms=21`."""

    def format(self, record: logging.LogRecord) -> str:
        context: dict[str, Any] = getattr(record, "context", {})
        at = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        fields = [at, record.levelname, record.getMessage()]
        fields += [f"{key}={_quoted(value)}" for key, value in context.items()]
        if record.exc_info:
            fields.append("\n" + self.formatException(record.exc_info))
        return " ".join(fields)


def _quoted(value: object) -> str:
    text = str(value)
    return text if text.isprintable() and " " not in text and '"' not in text else json.dumps(text)


def configure_logging(level: str = "INFO") -> None:
    """Write the log to standard error."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(KeyValueFormatter())
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
