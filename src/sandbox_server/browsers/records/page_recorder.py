import asyncio
import base64
import binascii
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from sandbox_server.browsers.records.captcha_watch import CaptchaOptions, CaptchaWatch
from sandbox_server.browsers.records.cdp_client import CdpClient, CdpFailure
from sandbox_server.browsers.records.entries import LogEntry, PageEvents
from sandbox_server.browsers.records.frames import Frame

FRAME_EVERY = timedelta(seconds=0.2)
"""The shortest time between two pictures of a recording."""

_SCREENCAST = {"format": "jpeg", "quality": 60, "maxWidth": 1280, "maxHeight": 1280}
# Bodies of responses are not read, so the browser keeps none.
_NETWORK = {"maxTotalBufferSize": 0, "maxResourceBufferSize": 0}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """The records that a session keeps: its settings and the server's limits decide."""

    logs: bool
    frames: bool
    captchas: CaptchaOptions | None = None

    @property
    def is_anything(self) -> bool:
        return self.logs or self.frames or self.captchas is not None


class PageRecorder:
    """Records one page by a session of its own at the target."""

    def __init__(
        self,
        client: CdpClient,
        target_session: str,
        *,
        number: int,
        url: str,
        recorded: Recorded,
        add_entry: Callable[[LogEntry], None],
        captchas: CaptchaWatch | None = None,
    ) -> None:
        self.number = number
        self.url = url
        self._client = client
        self._target_session = target_session
        self._recorded = recorded
        self._add_entry = add_entry
        self._captchas = captchas
        self._watching: asyncio.Task[None] | None = None
        self._events = PageEvents(number)
        self._frames: list[Frame] = []
        self._size = 0
        self._acks: set[asyncio.TimerHandle] = set()

    @property
    def size(self) -> int:
        """Bytes of pictures that are not stored yet."""
        return self._size

    async def start(self) -> None:
        """Subscribe to the page's events."""
        wanted: list[tuple[str, Mapping[str, Any]]] = [
            ("Page.enable", {}),
            ("Inspector.enable", {}),
        ]
        if self._recorded.logs:
            wanted += [
                ("Runtime.enable", {}),
                ("Log.enable", {}),
                ("Network.enable", _NETWORK),
            ]
        if self._recorded.frames:
            wanted.append(("Page.startScreencast", _SCREENCAST))
        for method, params in wanted:
            try:
                await self._client.call(method, params, session_id=self._target_session)
            except CdpFailure:
                if self._client.closed.is_set():
                    return
        if self._captchas is not None:
            self._watching = asyncio.create_task(self._captchas.run())

    def on_event(self, method: str, params: Mapping[str, Any]) -> None:
        if method == "Page.screencastFrame":
            self._take_frame(params)
            return
        if method == "Page.frameNavigated":
            frame = params.get("frame")
            if isinstance(frame, dict) and "parentId" not in frame:
                self.url = str(frame.get("url", ""))
                if self._captchas is not None:
                    self._captchas.on_navigated()
        if self._recorded.logs:
            entry = self._events.read(method, params, at_ms=now_ms())
            if entry is not None:
                self._add_entry(entry)

    def take_frames(self) -> list[Frame]:
        """Take the pictures that are not stored yet."""
        taken, self._frames, self._size = self._frames, [], 0
        return taken

    def stop(self) -> None:
        for ack in self._acks:
            ack.cancel()
        if self._watching is not None:
            self._watching.cancel()

    def _take_frame(self, params: Mapping[str, Any]) -> None:
        try:
            picture = base64.b64decode(str(params.get("data")), validate=True)
        except binascii.Error:
            return
        at_ms = _instant(params) or now_ms()
        last = self._frames[-1].at_ms if self._frames else 0
        if at_ms - last >= FRAME_EVERY.total_seconds() * 1000:
            self._frames.append(Frame(at_ms, picture))
            self._size += len(picture)
        # Chromium sends the next picture after this acknowledgement, if the page has changed.
        ack = asyncio.get_running_loop().call_later(
            FRAME_EVERY.total_seconds(), self._acknowledge, params.get("sessionId")
        )
        self._acks = {each for each in self._acks if each.when() > ack.when() - 1} | {ack}

    def _acknowledge(self, number: object) -> None:
        self._client.send(
            "Page.screencastFrameAck", {"sessionId": number}, session_id=self._target_session
        )


def _instant(params: Mapping[str, Any]) -> int | None:
    metadata = params.get("metadata")
    instant = metadata.get("timestamp") if isinstance(metadata, dict) else None
    return round(instant * 1000) if isinstance(instant, int | float) else None
