"""Synchronizes a directory and a sandbox continuously."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from watchfiles import awatch

from sandbox_client import AsyncSandbox
from sandbox_client.errors import SandboxError
from sandbox_client.events import WatchEnded
from sandbox_client.models import SandboxState
from sandbox_client.workspace.endpoint.ignore import Rules
from sandbox_client.workspace.local import LocalEndpoint
from sandbox_client.workspace.plan import Direction
from sandbox_client.workspace.remote import ROOT, RemoteEndpointError
from sandbox_client.workspace.sync import DirectorySync, SyncReport

_DEBOUNCE_S = 0.3  # changes within this time are synchronized together
_RETRY_S = 5.0
_POLL_STATE_S = 10.0
_ENDED = (SandboxState.STOPPED, SandboxState.FAILED)


class DirectoryWatch:
    """Synchronizes whenever something changes on either side."""

    def __init__(
        self,
        shared: DirectorySync,
        local: LocalEndpoint,
        sandbox: AsyncSandbox,
        *,
        on_report: Callable[[SyncReport], None],
        on_error: Callable[[str], None],
    ) -> None:
        self._shared = shared
        self._local = local
        self._sandbox = sandbox
        self._on_report = on_report
        self._on_error = on_error
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Run until cancelled; errors are reported and retried."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_local())
            tasks.create_task(self._watch_remote())
            while True:
                await self._changed.wait()
                await asyncio.sleep(_DEBOUNCE_S)
                self._changed.clear()
                await self._synchronize()

    async def _synchronize(self) -> None:
        try:
            self._on_report(await self._shared.synchronize(Direction.BOTH))
        except (SandboxError, RemoteEndpointError, OSError) as error:
            self._on_error(f"Synchronization failed: {error}")
            self._changed.set()
            await asyncio.sleep(_RETRY_S)

    async def _watch_local(self) -> None:
        root = self._local.root
        async for changes in awatch(root, watch_filter=None, step=50, debounce=200):
            rules = Rules(await self._local.rules())
            paths = [_relative(path, str(root)) for _, path in changes]
            if any(path and not rules.is_ignored(path, is_directory=False) for path in paths):
                self._changed.set()

    async def _watch_remote(self) -> None:
        while True:
            try:
                await self._wait_until_running()
                self._changed.set()  # covers changes made before the watch started
                await self._watch_once(Rules(await self._local.rules()))
            except SandboxError as error:
                self._on_error(f"Cannot watch the sandbox's files: {error}")
                await asyncio.sleep(_RETRY_S)

    async def _watch_once(self, rules: Rules) -> None:
        async with aclosing(self._sandbox.files.watch(ROOT, recursive=True)) as events:
            async for event in events:
                if isinstance(event, WatchEnded):
                    return
                path = getattr(event, "path", "")
                if not path or not rules.is_ignored(path, is_directory=False):
                    self._changed.set()

    async def _wait_until_running(self) -> None:
        """Wait until the sandbox runs, without resuming it."""
        while (record := await self._sandbox.refresh()).state != SandboxState.RUNNING:
            if record.state in _ENDED:
                raise RemoteEndpointError(
                    f"The sandbox was deleted or failed: {record.state_reason}"
                )
            await asyncio.sleep(_POLL_STATE_S)


def _relative(path: str, root: str) -> str:
    return path.removeprefix(root).lstrip("/")
