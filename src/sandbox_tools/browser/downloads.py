import asyncio
from pathlib import Path, PurePath

from playwright.async_api import Download, Error

from sandbox_tools.browser.errors import first_line
from sandbox_tools.browser.page_events import PageEvents
from sandbox_tools.toolkit.workspace import Workspace

_MAX_NAME = 150


class Downloads:
    """Saves downloads in the working directory, under unused names."""

    def __init__(self, workspace: Workspace, events: PageEvents) -> None:
        self._directory = workspace.root / "downloads"
        self._events = events
        self._pending: set[str] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def keep(self, download: Download) -> None:
        url = download.url
        self._pending.add(url)
        self._idle.clear()
        try:
            self._events.add(await self._save(download))
        finally:
            self._pending.discard(url)
            if not self._pending:
                self._idle.set()

    async def wait(self, seconds: float) -> None:
        """Wait for downloads to finish; unfinished ones are reported."""
        try:
            async with asyncio.timeout(seconds):
                await self._idle.wait()
        except TimeoutError:
            self._events.add(f"Still downloading: {', '.join(sorted(self._pending))}")

    async def _save(self, download: Download) -> str:
        name = PurePath(download.suggested_filename).name[-_MAX_NAME:] or "download"
        try:
            path = await asyncio.to_thread(_reserve, self._directory, name)
        except OSError as error:
            return f"Download of {name} to {self._directory} failed: {error.strerror}."
        try:
            await download.save_as(path)
        except Error as error:
            path.unlink(missing_ok=True)
            return f"Download of {name} failed: {first_line(error.message)}"
        return f"Downloaded {path} ({path.stat().st_size} bytes)."


def _reserve(directory: Path, name: str) -> Path:
    """Create an empty file with an unused name."""
    directory.mkdir(parents=True, exist_ok=True)
    wanted = directory / name
    path, count = wanted, 1
    while True:
        try:
            path.touch(exist_ok=False)
        except FileExistsError:
            count += 1
            path = wanted.with_stem(f"{wanted.stem}-{count}")
        else:
            return path
