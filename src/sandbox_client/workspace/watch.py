"""A directory and a sandbox kept the same for as long as this runs."""

import asyncio
from collections.abc import Callable
from contextlib import aclosing

from watchfiles import awatch

from sandbox_client import AsyncSandbox
from sandbox_client.errors import SandboxError
from sandbox_client.events import WatchEnded
from sandbox_client.models import SandboxState
from sandbox_client.workspace.endpoint.ignore import Rules
from sandbox_client.workspace.local import Near
from sandbox_client.workspace.plan import Direction
from sandbox_client.workspace.remote import ROOT, SandboxSideFailed
from sandbox_client.workspace.sync import Report, SharedDirectory

_TOGETHER_S = 0.3  # changes that come so soon after each other are carried over at once
_AGAIN_S = 5.0
_ASK_WHETHER_IT_RUNS_S = 10.0
_ENDED = (SandboxState.STOPPED, SandboxState.FAILED)


class Following:
    """Brings both sides together whenever something changes on one of them."""

    def __init__(
        self,
        shared: SharedDirectory,
        near: Near,
        sandbox: AsyncSandbox,
        *,
        tell: Callable[[Report], None],
        complain: Callable[[str], None],
    ) -> None:
        self._shared = shared
        self._near = near
        self._sandbox = sandbox
        self._tell = tell
        self._complain = complain
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Go on until cancelled; what fails is told, and tried again."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_near())
            tasks.create_task(self._watch_far())
            while True:
                await self._changed.wait()
                await asyncio.sleep(_TOGETHER_S)
                self._changed.clear()
                await self._bring_together()

    async def _bring_together(self) -> None:
        try:
            self._tell(await self._shared.bring_together(Direction.BOTH))
        except (SandboxError, SandboxSideFailed, OSError) as error:
            self._complain(f"Not brought together: {error}")
            self._changed.set()
            await asyncio.sleep(_AGAIN_S)

    async def _watch_near(self) -> None:
        root = self._near.root
        async for changes in awatch(root, watch_filter=None, step=50, debounce=200):
            rules = Rules(await self._near.rules())
            paths = [_relative(path, str(root)) for _, path in changes]
            if any(path and not rules.have_left_out(path, is_directory=False) for path in paths):
                self._changed.set()

    async def _watch_far(self) -> None:
        while True:
            try:
                await self._while_it_is_away()
                self._changed.set()  # whatever happened before it was watched
                await self._watch_once(Rules(await self._near.rules()))
            except SandboxError as error:
                self._complain(f"The sandbox's files are not followed: {error}")
                await asyncio.sleep(_AGAIN_S)

    async def _watch_once(self, rules: Rules) -> None:
        async with aclosing(self._sandbox.files.watch(ROOT, recursive=True)) as events:
            async for event in events:
                if isinstance(event, WatchEnded):
                    return
                path = getattr(event, "path", "")
                if not path or not rules.have_left_out(path, is_directory=False):
                    self._changed.set()

    async def _while_it_is_away(self) -> None:
        """Wait until it runs, without waking it."""
        while (record := await self._sandbox.refresh()).state != SandboxState.RUNNING:
            if record.state in _ENDED:
                raise SandboxSideFailed(f"The sandbox has ended: {record.state_reason}")
            await asyncio.sleep(_ASK_WHETHER_IT_RUNS_S)


def _relative(path: str, root: str) -> str:
    return path.removeprefix(root).lstrip("/")
