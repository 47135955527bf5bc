import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox_tools.gateway.config_files import Sources
from sandbox_tools.gateway.errors import Failed
from sandbox_tools.gateway.server_config import Entry, InvalidEntry, Launch
from sandbox_tools.gateway.upstream import Patience, State, Upstream

_MOST_SERVERS = 100
_MOST_OF_ALL_LISTS = 768 * 1024
_SECONDS_BETWEEN_LOOKS = 0.5
_UNLISTED = Failed(
    "Its tools are not listed, since those of other servers are all that clients can be told. Disable some."
)


@dataclass(frozen=True, kw_only=True)
class Status:
    """How a server of the user's is."""

    entry: Entry
    state: State
    tools: tuple[str, ...] = ()
    failure: Failed | None = None
    log: Path | None = None


class Gateway:
    """Has exactly those servers connected that are wanted at this moment."""

    def __init__(
        self, sources: Sources, *, directory: Path, logs: Path, patience: Patience | None = None
    ) -> None:
        self.sources = sources
        self.upstreams: dict[str, Upstream] = {}
        self.changed: Callable[[], None] = lambda: None
        self._directory = directory
        self._logs = logs
        self._patience = patience or Patience()
        self._entries: dict[str, Entry] = {}
        self._invalid: dict[str, Failed] = {}
        self._bringing_about = asyncio.Lock()
        self._ending = asyncio.Event()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        following = asyncio.create_task(self._follow(), name="mcp-gateway")
        try:
            yield
        finally:
            self._ending.set()
            await following
            async with self._bringing_about:
                await asyncio.gather(*(upstream.stop() for upstream in self.upstreams.values()))
                self.upstreams.clear()

    async def bring_about(self) -> None:
        """Start, stop and start again what differs from what is wanted now, and nothing else."""
        # Whoever gives up waiting for it leaves no server half stopped.
        await asyncio.shield(asyncio.create_task(self._bring_about()))

    async def _bring_about(self) -> None:
        async with self._bringing_about:
            if self._ending.is_set():
                return
            wanted = self._wanted()
            gone = [
                self.upstreams.pop(name)
                for name, upstream in list(self.upstreams.items())
                if wanted.get(name) != upstream.launch
            ]
            await asyncio.gather(*(upstream.stop() for upstream in gone))
            for name in wanted.keys() - self.upstreams.keys():
                self.upstreams[name] = self._started(name, wanted[name])
            if gone:
                self.changed()

    def variables(self) -> dict[str, str]:
        """Give the environment of servers, of which also their entries' values may be made."""
        return {**os.environ, **self.sources.settings.read().envs}

    def listed(self) -> list[Upstream]:
        """Choose whose tools are told to clients, which lose a list that is too long."""
        room, chosen = _MOST_OF_ALL_LISTS, list[Upstream]()
        for _, upstream in sorted(self.upstreams.items()):
            if upstream.size <= room:
                chosen.append(upstream)
                room -= upstream.size
        return chosen

    def statuses(self) -> list[Status]:
        return [self._status(entry) for _, entry in sorted(self._entries.items())]

    def status(self, name: str) -> Status | None:
        entry = self._entries.get(name)
        return None if entry is None else self._status(entry)

    def health(self) -> Mapping[str, Mapping[str, Any]]:
        """Tell what anybody may know: names, states, and what is wrong in words of ours."""
        return {status.entry.name[:64]: _health(status) for status in self.statuses()}

    async def settle(self, seconds: float) -> None:
        """Wait for servers until they are ready or have failed, or were started that long ago."""
        if starting := [one for one in self.upstreams.values() if not one.is_settled]:
            await asyncio.gather(*(upstream.settle_since_start(seconds) for upstream in starting))

    async def _follow(self) -> None:
        while not self._ending.is_set():
            await self.bring_about()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), _SECONDS_BETWEEN_LOOKS)

    def _wanted(self) -> dict[str, Launch]:
        self._entries = dict(list(self.sources.entries().items())[:_MOST_SERVERS])
        self._invalid = {}
        wanted = {}
        variables = self.variables()
        for name, entry in self._entries.items():
            if entry.disabled:
                continue
            try:
                wanted[name] = entry.launch(variables)
            except InvalidEntry as error:
                self._invalid[name] = Failed(str(error))
        return wanted

    def _started(self, name: str, launch: Launch) -> Upstream:
        return Upstream(
            name,
            launch,
            directory=self._directory,
            log=self._logs / f"mcp-{name}.log",
            patience=self._patience,
            changed=self._tell,
        )

    def _tell(self) -> None:
        self.changed()

    def _status(self, entry: Entry) -> Status:
        upstream = self.upstreams.get(entry.name)
        if upstream is not None:
            return Status(
                entry=entry,
                state=upstream.state,
                tools=tuple(tool.name for tool in upstream.tools),
                failure=upstream.failure if upstream in self.listed() else _UNLISTED,
                log=upstream.log if upstream.log.is_file() else None,
            )
        invalid = self._invalid.get(entry.name)
        state = State.DISABLED if entry.disabled else State.FAILED if invalid else State.STARTING
        return Status(entry=entry, state=state, failure=invalid)


def _health(status: Status) -> dict[str, Any]:
    told: dict[str, Any] = {"state": status.state, "tools": len(status.tools)}
    return told | {"error": status.failure.sentence} if status.failure else told
