import logging
import re
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from sandbox_http.tunnel import SWITCHED

log = logging.getLogger("sandbox_server.access")

# Of a browser's URL, which contains its token in the path.
_TOKEN = re.compile(r"(/browser/sbb_)[A-Za-z0-9_-]+")


class AccessLog:
    """Logs each request when it ends, without its query, which may contain a ticket or a signature."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not log.isEnabledFor(logging.INFO):
            await self._app(scope, receive, send)
            return
        started_at = time.perf_counter()
        status = 0

        async def send_recording_status(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, send_recording_status)
        finally:
            log.info(
                "%s %s status=%d ms=%.1f",
                *(
                    scope["method"],
                    _path(scope),
                    scope.get(SWITCHED, status),
                    (time.perf_counter() - started_at) * 1000,
                ),
            )


def _path(scope: Scope) -> str:
    # The raw path: its escapes keep the log entry on one line.
    raw: bytes = scope.get("raw_path") or scope["path"].encode("unicode_escape")
    return _TOKEN.sub(r"\1…", raw.partition(b"?")[0].decode("ascii", "backslashreplace"))
