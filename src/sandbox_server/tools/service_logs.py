"""Logs of a template's services: `/var/log/sandbox/NAME.log` in each sandbox.

While a client follows the sandbox's log, each file is recorded once, by a command of kind `service` that one server starts.
A recording resumes where the previous one ended, so it begins with what was written in between.
"""

import asyncio
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import islice

from sqlalchemy.exc import IntegrityError

from sandbox_server.commands.service import Commands
from sandbox_server.db.models import Command
from sandbox_server.db.session import OUTAGES, Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.commands import COMMAND_LIVING, CommandKind, CommandRequest, CommandState
from sandbox_server.domain.errors import PathNotFound, SandboxError
from sandbox_server.domain.files import Entry, EntryType
from sandbox_server.domain.state import State
from sandbox_server.providers.e2b.files import Files
from sandbox_server.providers.protocol.processes import ProcessSignal
from sandbox_server.sandboxes.repositories.sandboxes import SandboxRepository
from sandbox_server.sandboxes.sandbox_access import SandboxAccess
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.tools.log_repository import LastRecording, ServiceLogRepository

log = logging.getLogger(__name__)

DIRECTORY = "/var/log/sandbox"
UPDATE_EVERY = timedelta(seconds=10)
RECORDED_FOR = timedelta(seconds=60)
"""How long a log is recorded after its last follower on any server has left."""

_FILE = re.compile(r"([a-z0-9][a-z0-9_.-]{0,62})\.log")
_START = re.compile(r"tail -c \+([0-9]{1,18}) ")
_MOST_FILES = 32
_MOST_LISTED = 1000
_CONCURRENT_SANDBOXES = 8
_EXPIRED_BATCH = 50
# Delay before a recording that ended by itself, as without `tail`, is started again.
_RETRY_AFTER = timedelta(minutes=1)
_INTERRUPTED = frozenset({CommandState.KILLED, CommandState.LOST})
# Services run as different users.
_READER = "root"
_NO_WAIT = timedelta()


class ServiceLogRecorder:
    """Records the service logs of the sandboxes followed at this server, and ends recordings that nobody follows."""

    def __init__(
        self,
        sessions: Sessions,
        controller: SandboxController,
        commands: Commands,
        using: SandboxAccess,
        *,
        update_every: timedelta = UPDATE_EVERY,
        recorded_for: timedelta = RECORDED_FOR,
    ) -> None:
        self._sessions = sessions
        self._controller = controller
        self._commands = commands
        self._using = using
        self._update_every = update_every
        self._recorded_for = recorded_for
        self._followers: Counter[str] = Counter()
        self._callers: dict[str, Caller] = {}
        self._wake = asyncio.Event()

    @contextmanager
    def followed(self, caller: Caller, sandbox_ids: Iterable[str]) -> Iterator[None]:
        """Record the logs of these sandboxes during the block, and a little longer."""
        followed = list(sandbox_ids)
        for sandbox_id in followed:
            self._followers[sandbox_id] += 1
            self._callers[sandbox_id] = caller
        self._wake.set()
        try:
            yield
        finally:
            for sandbox_id in followed:
                self._followers[sandbox_id] -= 1
                if not self._followers[sandbox_id]:
                    del self._followers[sandbox_id], self._callers[sandbox_id]

    async def run(self) -> None:
        """Update the recordings periodically and at every new follower, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._update_every.total_seconds()):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            try:
                await self._update()
            except OUTAGES as error:
                log.warning("could not update recordings of service logs error=%r", error)

    async def _update(self) -> None:
        callers = dict(self._callers)
        limit = asyncio.Semaphore(_CONCURRENT_SANDBOXES)
        async with asyncio.TaskGroup() as group:
            for sandbox_id, caller in callers.items():
                group.create_task(self._record(caller, sandbox_id, limit))
        async with without_transaction(self._sessions) as session:
            services = ServiceLogRepository(session)
            if callers:
                await services.extend(list(callers), duration=self._recorded_for)
            expired = await services.list_expired(grace=self._recorded_for, limit=_EXPIRED_BATCH)
        for command in expired:
            await self._end(command)

    async def _record(self, caller: Caller, sandbox_id: str, limit: asyncio.Semaphore) -> None:
        """Start the missing recordings of a sandbox, if it runs."""
        async with limit:
            try:
                await self._start_missing(caller, sandbox_id)
            except (SandboxError, *OUTAGES) as error:
                log.info("service logs not recorded sandbox_id=%s error=%r", sandbox_id, error)

    async def _start_missing(self, caller: Caller, sandbox_id: str) -> None:
        sandbox = await self._controller.get(caller, sandbox_id)
        if sandbox.state is not State.RUNNING:
            return
        used = self._using.usable(sandbox)
        files = _logs_among(await _list(used.backend.files(used.access, user=_READER)))
        if not files:
            return
        async with without_transaction(self._sessions) as session:
            recordings = await ServiceLogRepository(session).list_last(
                sandbox_id, recently=_RETRY_AFTER
            )
        for name, size in files.items():
            last = recordings.get(name)
            if last is None or _may_restart(last):
                await self._start(caller, sandbox_id, name, size, last)

    async def _start(
        self, caller: Caller, sandbox_id: str, name: str, size: int, last: LastRecording | None
    ) -> None:
        """Record a log from the end of its last recording."""
        position = 0 if last is None else _position_after(last.command)
        start = position if position <= size else 0  # a smaller file was replaced
        request = CommandRequest(
            cmd=f"exec tail -c +{start + 1} -F {DIRECTORY}/{name}.log 2>/dev/null",
            kind=CommandKind.SERVICE,
            name=name,
            user=_READER,
            background=True,
        )
        with suppress(IntegrityError):  # another server has started it
            await self._commands.start(caller, sandbox_id, request, wait=_NO_WAIT)

    async def _end(self, command: Command) -> None:
        """End a recording, unless its sandbox is not running, where it costs nothing."""
        async with without_transaction(self._sessions) as session:
            found = await SandboxRepository(session).find(command.sandbox_id)
        if found is None or found[0].state is not State.RUNNING:
            return
        try:
            used = self._using.usable(found[0])
            processes = used.backend.processes(used.access)
            await processes.send_signal(command.id, ProcessSignal.KILL)
        except SandboxError as error:
            log.info("could not end recording command_id=%s error=%r", command.id, error)


async def _list(files: Files) -> Sequence[Entry]:
    try:
        return await files.list_below(DIRECTORY, depth=1, limit=_MOST_LISTED)
    except PathNotFound:
        return ()


def _logs_among(entries: Sequence[Entry]) -> Mapping[str, int]:
    """Return the sizes of the service logs by service name."""
    found = {
        match[1]: entry.size
        for entry in sorted(entries, key=lambda entry: entry.name)
        if entry.type is EntryType.FILE and (match := _FILE.fullmatch(entry.name))
    }
    return dict(islice(found.items(), _MOST_FILES))


def _may_restart(last: LastRecording) -> bool:
    if last.command.state in COMMAND_LIVING:
        return False
    return last.command.state in _INTERRUPTED or not last.ended_recently


def _position_after(command: Command) -> int:
    """Return the position in the file up to which a recording has read."""
    start = _START.search(command.cmd)
    return 0 if start is None else int(start[1]) - 1 + command.stdout_size
