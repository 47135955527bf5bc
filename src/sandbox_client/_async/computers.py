from __future__ import annotations

from collections.abc import AsyncGenerator, Iterable
from pathlib import Path
from typing import Any, Unpack

from sandbox_client import models
from sandbox_client._async.files import save
from sandbox_client._async.pagination import list_all
from sandbox_client._async.tasks import AsyncTasks
from sandbox_client._async.transport import AsyncTransport
from sandbox_client.protocol.calls import Query, call, create, request_body, segment
from sandbox_client.protocol.options import BrowserOptions, DesktopActionOptions

_LONGEST_ACTION_S = 60.0


class AsyncBrowsers(AsyncTasks):
    """Browser sessions, each in a sandbox of its own."""

    async def create_browser(
        self, *, wait_s: float = 60, **options: Unpack[BrowserOptions]
    ) -> models.BrowserRead:
        """Create a browser session; it is still pending if no slot was free for `wait_s`."""
        request = create(
            "/v1/browsers", request_body(models.BrowserCreate, options), wait=min(wait_s, 300)
        )
        return await self._transport.fetch(models.BrowserRead, request)

    def list_browsers(
        self, *, states: Iterable[models.BrowserState | str] | None = None
    ) -> AsyncGenerator[models.BrowserRead, None]:
        """List browser sessions, newest first; without states also those that have ended."""
        named = None if states is None else [models.BrowserState(each).value for each in states]
        return list_all(
            self._transport, "/v1/browsers", models.Page[models.BrowserRead], {"state": named}
        )

    async def get_browser(self, browser_id: str) -> models.BrowserRead:
        """Get a browser session, in any state."""
        return await self._transport.fetch(models.BrowserRead, call("GET", _path(browser_id)))

    async def release_browser(self, browser_id: str) -> models.BrowserRead:
        """End a browser session and delete its sandbox."""
        request = call("POST", f"{_path(browser_id)}/release", may_repeat=True)
        return await self._transport.fetch(models.BrowserRead, request)

    def browser_logs(
        self, browser_id: str, *, kind: models.BrowserLogKind | str | None = None
    ) -> AsyncGenerator[models.BrowserLogEntry, None]:
        """List what the pages of a session wrote to their consoles, requested and failed at."""
        named = None if kind is None else models.BrowserLogKind(kind).value
        return list_all(
            self._transport,
            f"{_path(browser_id)}/logs",
            models.Page[models.BrowserLogEntry],
            {"kind": named},
        )

    async def browser_recordings(self, browser_id: str) -> list[models.BrowserRecordingRead]:
        """List the pages of a session that were recorded."""
        request = call("GET", f"{_path(browser_id)}/recordings")
        page = await self._transport.fetch(models.Page[models.BrowserRecordingRead], request)
        return page.items

    async def read_browser_recording(self, browser_id: str, page: int, *, to: Path | str) -> None:
        """Save the recording of a page as MP4 to a local file."""
        request = call("GET", f"{_path(browser_id)}/recordings/{page}")
        async with self._transport.attempt(request) as response:
            await save(response.aiter_bytes(), to)

    async def browser_frame(self, browser_id: str, page: int, at_s: float) -> bytes:
        """Get the picture that a page showed at a second of its recording, as JPEG."""
        query: Query = {"at_s": at_s}
        request = call("GET", f"{_path(browser_id)}/recordings/{page}/frame", query=query)
        return (await self._transport.send(request)).content


def _path(browser_id: str) -> str:
    return f"/v1/browsers/{segment(browser_id)}"


class AsyncDesktop:
    """The desktop of a sandbox whose template has one. Actions and screenshots resume a paused sandbox."""

    def __init__(self, transport: AsyncTransport, path: str) -> None:
        self._transport = transport
        self._path = path

    async def get(self) -> models.DesktopRead:
        """Get the state; a paused sandbox stays paused."""
        return await self._transport.fetch(models.DesktopRead, call("GET", self._path))

    async def update(self, **changes: Any) -> models.DesktopRead:
        """Change `resolution`, `dpi`, `stream` or `recording`, which None stops."""
        body = models.DesktopUpdate.model_validate(changes)
        return await self._transport.fetch(models.DesktopRead, call("PATCH", self._path, body))

    async def act(
        self, action: models.DesktopActionName | str, **options: Unpack[DesktopActionOptions]
    ) -> models.DesktopActionResult:
        """Carry out one action; `screenshot=True` returns what the desktop looks like afterwards.

        Raises DesktopControlled while a person has control.
        """
        body = request_body(models.DesktopAction, {"action": action, **options})
        request = call("POST", f"{self._path}/actions", body)
        lasts = _LONGEST_ACTION_S if body.duration_s is not None else 0.0
        return await self._transport.fetch(
            models.DesktopActionResult,
            request.with_read_timeout(self._transport.timeout + lasts),
        )

    async def screenshot(
        self, *, media: str = "png", quality: int = 80, to: Path | str | None = None
    ) -> bytes:
        """Take a screenshot as `png` or `jpeg`, and save it if `to` names a local file."""
        query: Query = {"format": media, "quality": quality}
        request = call("GET", f"{self._path}/screenshot", query=query)
        content = (await self._transport.send(request)).content
        if to is not None:
            Path(to).write_bytes(content)
        return content

    async def click(
        self, x: int, y: int, *, button: str = "left", screenshot: bool = False
    ) -> models.DesktopActionResult:
        """Click at a point with the `left`, `right` or `middle` button."""
        return await self.act(f"{button}_click", coordinate=(x, y), screenshot=screenshot)

    async def type(self, text: str, *, screenshot: bool = False) -> models.DesktopActionResult:
        """Type a text."""
        return await self.act("type", text=text, screenshot=screenshot)

    async def press(self, key: str, *, screenshot: bool = False) -> models.DesktopActionResult:
        """Press a key or a combination, such as `Return` or `ctrl+s`."""
        return await self.act("key", text=key, screenshot=screenshot)

    async def create_link(
        self,
        *,
        mode: models.DesktopMode | str | None = None,
        ttl_s: float | None = None,
        name: str | None = None,
    ) -> models.DesktopLinkCreated:
        """Create a link to a page that shows the desktop (`view`) or lets its visitor take over (`control`)."""
        fields = {"mode": mode, "ttl_s": ttl_s, "name": name}
        body = request_body(models.DesktopLinkCreate, fields)
        request = call("POST", f"{self._path}/links", body)
        return await self._transport.fetch(models.DesktopLinkCreated, request)

    async def list_links(self) -> list[models.DesktopLinkRead]:
        """List the valid links, newest first."""
        request = call("GET", f"{self._path}/links")
        return (await self._transport.fetch(models.Page[models.DesktopLinkRead], request)).items

    async def revoke_link(self, link_id: str) -> None:
        """Revoke a link; its pages are disconnected."""
        await self._transport.delete(call("DELETE", f"{self._path}/links/{segment(link_id)}"))

    async def start_recording(self, *, fps: int | None = None) -> models.DesktopRecordingState:
        """Start recording the desktop."""
        body = request_body(models.DesktopRecordingOptions, {"fps": fps})
        request = call("POST", f"{self._path}/recordings", body, may_repeat=True)
        return await self._transport.fetch(models.DesktopRecordingState, request)

    async def stop_recording(self) -> None:
        """Stop recording; no effect if nothing is recorded."""
        await self._transport.delete(call("DELETE", f"{self._path}/recordings/current"))

    async def list_recordings(self) -> list[models.DesktopRecordingRead]:
        """List the recordings that have ended, oldest first."""
        request = call("GET", f"{self._path}/recordings")
        page = await self._transport.fetch(models.Page[models.DesktopRecordingRead], request)
        return page.items

    async def read_recording(self, recording_id: str, *, to: Path | str) -> None:
        """Save a recording as MP4 to a local file."""
        request = call("GET", self._recording(recording_id))
        async with self._transport.attempt(request) as response:
            await save(response.aiter_bytes(), to)

    async def frame(self, recording_id: str, at_s: float) -> bytes:
        """Get the picture that was shown at a second of a recording, as JPEG."""
        query: Query = {"at_s": at_s}
        request = call("GET", f"{self._recording(recording_id)}/frame", query=query)
        return (await self._transport.send(request)).content

    async def delete_recording(self, recording_id: str) -> None:
        """Delete a recording that has ended."""
        await self._transport.delete(call("DELETE", self._recording(recording_id)))

    def _recording(self, recording_id: str) -> str:
        return f"{self._path}/recordings/{segment(recording_id)}"

    async def set_control(
        self, holder: models.DesktopHolder | str, *, ttl_s: float | None = None
    ) -> models.DesktopRead:
        """Give control to a `person`, for at most `ttl_s`, or back to the `agent`."""
        body = request_body(models.DesktopControlUpdate, {"holder": holder, "ttl_s": ttl_s})
        request = call("POST", f"{self._path}/control", body, may_repeat=True)
        return await self._transport.fetch(models.DesktopRead, request)
