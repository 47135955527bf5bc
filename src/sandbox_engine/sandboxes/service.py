from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Protocol

from sandbox_engine.records.catalog import Catalog
from sandbox_engine.records.journal import Journal
from sandbox_engine.records.sandbox import (
    EgressRecord,
    IdempotencyRecord,
    SandboxRecord,
    State,
)
from sandbox_engine.sandboxes.idempotency import IdempotencyKeys
from sandbox_engine.sandboxes.lifecycle import Lifecycle
from sandbox_engine.sandboxes.new_sandbox import NewSandbox, new_record
from sandbox_engine.sandboxes.sandbox import Sandbox
from sandbox_engine.system.errors import InvalidRequest, SandboxNotFound, WrongState
from sandbox_engine.system.settings import Settings
from sandbox_engine.volumes.volumes import Volumes

_SHORTEST_REFRESH = timedelta(seconds=15)
_SHORTEST_AUTO_RESUME = timedelta(minutes=5)
_KILLED = "killed by request"
_SHOWN = (State.RUNNING, State.PAUSED)


class SandboxSource(Protocol):
    """Provides a running sandbox for a request, new or from the warm pool."""

    async def create(self, wanted: SandboxRecord, *, reference: str) -> SandboxRecord: ...


class SandboxService:
    """Use cases of sandboxes."""

    def __init__(
        self,
        settings: Settings,
        lifecycle: Lifecycle,
        *,
        catalog: Catalog,
        source: SandboxSource,
        volumes: Volumes,
    ) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        self._catalog = catalog
        self._source = source
        self._volumes = volumes
        self._keys: IdempotencyKeys[SandboxRecord] = IdempotencyKeys()
        for record in lifecycle.records.values():
            if record.idempotency is not None:
                self._keys.remember(record.idempotency.key, record.idempotency.digest, record)

    async def create(
        self, request: NewSandbox, *, idempotency: IdempotencyRecord | None = None
    ) -> SandboxRecord:
        """Create a sandbox; a repeated idempotency key returns the first request's sandbox."""
        self.check_timeout(request.timeout)
        template = self._catalog.get(request.template)
        record = new_record(
            request,
            template,
            settings=self._settings,
            volumes=self._volumes.plan(request.volumes),
            idempotency=idempotency,
        )

        async def create() -> SandboxRecord:
            started = await self._source.create(record, reference=request.template)
            self._catalog.note_use(started.template)
            return started

        if idempotency is None:
            return await create()
        return await self._keys.once(idempotency.key, idempotency.digest, create)

    def get(self, sandbox_id: str) -> SandboxRecord:
        """Return the sandbox, running or paused."""
        record = self._lifecycle.records.get(sandbox_id)
        if record is None or record.state not in _SHOWN:
            raise SandboxNotFound(sandbox_id)
        return record

    def sandboxes(self) -> Iterable[SandboxRecord]:
        """List running and paused sandboxes."""
        return [record for record in self._lifecycle.records.values() if record.state in _SHOWN]

    def find_running(self, sandbox_id: str) -> Sandbox | None:
        """Return the running sandbox, if it runs."""
        sandbox = self._lifecycle.live.get(sandbox_id)
        return sandbox if sandbox and sandbox.record.state is State.RUNNING else None

    def running(self) -> Iterable[Sandbox]:
        """List running sandboxes."""
        live = self._lifecycle.live.values()
        return [sandbox for sandbox in live if sandbox.record.state is State.RUNNING]

    def journal(self, sandbox_id: str) -> Journal:
        """Return the sandbox's journal."""
        return self._lifecycle.journal(self.get(sandbox_id))

    async def connect(
        self, sandbox_id: str, timeout: timedelta, *, keep_memory: bool = True
    ) -> tuple[SandboxRecord, bool]:
        """Ensure that the sandbox runs for `timeout` from now; returns whether it was resumed."""
        self.check_timeout(timeout)
        async with self._lifecycle.transition(sandbox_id):
            record = self.get(sandbox_id)
            if record.state is State.PAUSED:
                await self._lifecycle.resume(record, timeout, keep_memory=keep_memory)
                return record, True
            self._extend(record, timeout)
            return record, False

    async def resume(
        self, sandbox_id: str, timeout: timedelta, *, keep_memory: bool = True
    ) -> SandboxRecord:
        """Resume a paused sandbox, with its processes or from its files only."""
        self.check_timeout(timeout)
        async with self._lifecycle.transition(sandbox_id):
            record = self.get(sandbox_id)
            if record.state is State.RUNNING:
                raise WrongState(f"Sandbox {sandbox_id} is already running")
            await self._lifecycle.resume(record, timeout, keep_memory=keep_memory)
            return record

    def find_auto_resumable(self, sandbox_id: str) -> SandboxRecord | None:
        """Find the sandbox if it is paused with auto-resume."""
        record = self._lifecycle.records.get(sandbox_id)
        if record is None or record.state is not State.PAUSED or record.filesystem_only:
            return None
        return record if record.auto_resume else None

    async def auto_resume(self, sandbox_id: str) -> None:
        """Resume a paused sandbox for traffic, with its original timeout."""
        async with self._lifecycle.transition(sandbox_id):
            record = self.find_auto_resumable(sandbox_id)
            if record is not None:
                timeout = min(record.timeout, self._settings.max_timeout)
                await self._lifecycle.resume(record, max(timeout, _SHORTEST_AUTO_RESUME))

    async def pause(self, sandbox_id: str, *, keep_memory: bool = True) -> None:
        """Pause the sandbox; keeps its files, and its memory unless told otherwise."""
        async with self._lifecycle.transition(sandbox_id):
            record = self.get(sandbox_id)
            if record.state is State.PAUSED:
                raise WrongState(
                    f"Error pausing sandbox - sandbox '{sandbox_id}' is already paused"
                )
            await self._lifecycle.pause(record, "paused by request", keep_memory=keep_memory)

    async def pause_if_running(self, sandbox_id: str, reason: str) -> None:
        """Pause a running sandbox for an internal reason."""
        async with self._lifecycle.transition(sandbox_id):
            record = self._lifecycle.records.get(sandbox_id)
            if record is not None and record.state is State.RUNNING:
                await self._lifecycle.pause(record, f"paused: {reason}")

    async def kill(self, sandbox_id: str) -> None:
        """Kill the sandbox and delete its files, even during a resume."""
        self._lifecycle.cancel_start(self.get(sandbox_id).id, _KILLED)
        async with self._lifecycle.transition(sandbox_id):
            await self._lifecycle.kill(self.get(sandbox_id), _KILLED)

    async def set_timeout(self, sandbox_id: str, timeout: timedelta) -> None:
        """Set the sandbox's timeout, counted from now."""
        async with self._lifecycle.transition(sandbox_id):
            record = self._running_record(sandbox_id)
            timeout = min(timeout, self._settings.max_timeout)
            self._lifecycle.set_end(record, datetime.now(UTC) + timeout)

    async def update_network(
        self, sandbox_id: str, egress: EgressRecord, *, allow_internet: bool | None
    ) -> None:
        """Replace the egress policy of a running sandbox."""
        egress.policy(allow_internet=allow_internet)
        async with self._lifecycle.transition(sandbox_id):
            record = self._running_record(sandbox_id)
            record.network = record.network.model_copy(update=dict(egress))
            record.allow_internet = allow_internet
            await self._lifecycle.apply_network_policy(record)

    async def refresh(self, sandbox_id: str, duration: timedelta) -> None:
        """Keep the sandbox for at least `duration` from now."""
        async with self._lifecycle.transition(sandbox_id):
            self._extend(self._running_record(sandbox_id), max(duration, _SHORTEST_REFRESH))

    async def close(self) -> None:
        """Stop managing all sandboxes; the next engine adopts them."""
        await self._lifecycle.close()

    def check_timeout(self, timeout: timedelta) -> None:
        if timeout <= timedelta(0):
            raise InvalidRequest("Timeout must be greater than 0")
        if timeout > self._settings.max_timeout:
            hours = self._settings.max_timeout_hours
            raise InvalidRequest(f"Timeout cannot be greater than {hours} hours")

    def _running_record(self, sandbox_id: str) -> SandboxRecord:
        record = self.get(sandbox_id)
        if record.state is not State.RUNNING:
            raise SandboxNotFound(sandbox_id)
        return record

    def _extend(self, record: SandboxRecord, timeout: timedelta) -> None:
        ends_at = datetime.now(UTC) + timeout
        if ends_at > record.ends_at:
            self._lifecycle.set_end(record, ends_at)
