import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sandbox_tools.gateway.config_files import ConfigFiles
from sandbox_tools.gateway.errors import UpstreamError
from sandbox_tools.gateway.server_config import InvalidServerConfig, LaunchSpec, ServerConfig
from sandbox_tools.gateway.upstream import State, Timeouts, Upstream

_MAX_SERVERS = 100
_MAX_LIST_BYTES = 768 * 1024
_POLL_INTERVAL_SECONDS = 0.5
_NOT_LISTED = UpstreamError(
    "Its tools are not listed: the tool list has reached its maximum size. Disable other servers."
)


@dataclass(frozen=True, kw_only=True)
class Status:
    """Status of a configured server."""

    config: ServerConfig
    state: State
    tools: tuple[str, ...] = ()
    failure: UpstreamError | None = None
    log: Path | None = None


class Gateway:
    """Keeps exactly the configured and enabled servers connected."""

    def __init__(
        self, sources: ConfigFiles, *, directory: Path, logs: Path, timeouts: Timeouts | None = None
    ) -> None:
        self.sources = sources
        self.upstreams: dict[str, Upstream] = {}
        self.changed: Callable[[], None] = lambda: None
        self._directory = directory
        self._logs = logs
        self._timeouts = timeouts or Timeouts()
        self._configs: dict[str, ServerConfig] = {}
        self._invalid: dict[str, UpstreamError] = {}
        self._reconciling = asyncio.Lock()
        self._ending = asyncio.Event()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        following = asyncio.create_task(self._follow(), name="mcp-gateway")
        try:
            yield
        finally:
            self._ending.set()
            await following
            async with self._reconciling:
                await asyncio.gather(*(upstream.stop() for upstream in self.upstreams.values()))
                self.upstreams.clear()

    async def reconcile(self) -> None:
        """Start, stop and restart servers whose configuration has changed."""
        # Shielded: a cancelled caller must not leave a server half stopped.
        await asyncio.shield(asyncio.create_task(self._reconcile()))

    async def _reconcile(self) -> None:
        async with self._reconciling:
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
                self.upstreams[name] = self._start_upstream(name, wanted[name])
            if gone:
                self.changed()

    def variables(self) -> dict[str, str]:
        """Return the servers' environment, also used to expand variables in their configuration."""
        return {**os.environ, **self.sources.settings.read().envs}

    def listed(self) -> list[Upstream]:
        """Select the servers whose tools fit into the list; clients drop longer lists."""
        room, chosen = _MAX_LIST_BYTES, list[Upstream]()
        for _, upstream in sorted(self.upstreams.items()):
            if upstream.size <= room:
                chosen.append(upstream)
                room -= upstream.size
        return chosen

    def statuses(self) -> list[Status]:
        return [self._status(config) for _, config in sorted(self._configs.items())]

    def status(self, name: str) -> Status | None:
        config = self._configs.get(name)
        return None if config is None else self._status(config)

    def health(self) -> Mapping[str, Mapping[str, Any]]:
        """Return the public part: names, states and our own error messages."""
        return {status.config.name[:64]: _health(status) for status in self.statuses()}

    async def wait_until_ready(self, seconds: float) -> None:
        """Wait for starting servers to be ready or failed, at most `seconds` after their start."""
        if starting := [
            upstream for upstream in self.upstreams.values() if not upstream.has_started
        ]:
            await asyncio.gather(*(upstream.wait_since_start(seconds) for upstream in starting))

    async def _follow(self) -> None:
        while not self._ending.is_set():
            await self.reconcile()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ending.wait(), _POLL_INTERVAL_SECONDS)

    def _wanted(self) -> dict[str, LaunchSpec]:
        self._configs = dict(list(self.sources.configs().items())[:_MAX_SERVERS])
        self._invalid = {}
        wanted = {}
        variables = self.variables()
        for name, config in self._configs.items():
            if config.disabled:
                continue
            try:
                wanted[name] = config.launch(variables)
            except InvalidServerConfig as error:
                self._invalid[name] = UpstreamError(str(error))
        return wanted

    def _start_upstream(self, name: str, launch: LaunchSpec) -> Upstream:
        return Upstream(
            name,
            launch,
            directory=self._directory,
            log=self._logs / f"mcp-{name}.log",
            timeouts=self._timeouts,
            changed=self._notify_changed,
        )

    def _notify_changed(self) -> None:
        self.changed()

    def _status(self, config: ServerConfig) -> Status:
        upstream = self.upstreams.get(config.name)
        if upstream is not None:
            return Status(
                config=config,
                state=upstream.state,
                tools=tuple(tool.name for tool in upstream.tools),
                failure=upstream.failure if upstream in self.listed() else _NOT_LISTED,
                log=upstream.log if upstream.log.is_file() else None,
            )
        invalid = self._invalid.get(config.name)
        state = State.DISABLED if config.disabled else State.FAILED if invalid else State.STARTING
        return Status(config=config, state=state, failure=invalid)


def _health(status: Status) -> dict[str, Any]:
    health: dict[str, Any] = {"state": status.state, "tools": len(status.tools)}
    return health | {"error": status.failure.message} if status.failure else health
