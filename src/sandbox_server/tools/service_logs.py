"""The logs of services that a template brings along: `/var/log/sandbox/NAME.log` in each sandbox.

They are recorded as commands of a kind of their own while somebody follows the sandbox's log, each file once, by whichever
server was first. What was written while nobody followed comes first then.
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
LOOK_EVERY = timedelta(seconds=10)
WANTED_FOR = timedelta(seconds=60)
"""How long a log is recorded after the last who followed it at any server."""

_FILE = re.compile(r"([a-z0-9][a-z0-9_.-]{0,62})\.log")
_BEGAN_AT = re.compile(r"tail -c \+([0-9]{1,18}) ")
_MOST_FILES = 32
_MOST_LISTED = 1000
_AT_ONCE = 8
_UNWANTED_AT_ONCE = 50
# What ends by itself, as where there is no `tail`, is not begun all the time.
_TRY_AGAIN = timedelta(minutes=1)
_CUT_SHORT = frozenset({CommandState.KILLED, CommandState.LOST})
# Logs are of all accounts.
_READER = "root"
_NO_WAIT = timedelta()


class ServiceLogRecorder:
    """Records the logs of services of the sandboxes that are followed here, and ends what nobody follows anywhere."""

    def __init__(
        self,
        sessions: Sessions,
        controller: SandboxController,
        commands: Commands,
        using: SandboxAccess,
        *,
        look_every: timedelta = LOOK_EVERY,
        wanted_for: timedelta = WANTED_FOR,
    ) -> None:
        self._sessions = sessions
        self._controller = controller
        self._commands = commands
        self._using = using
        self._look_every = look_every
        self._wanted_for = wanted_for
        self._followers: Counter[str] = Counter()
        self._callers: dict[str, Caller] = {}
        self._asked = asyncio.Event()

    @contextmanager
    def followed(self, caller: Caller, sandbox_ids: Iterable[str]) -> Iterator[None]:
        """Have the logs of these sandboxes recorded as long as the block lasts, and a little longer."""
        followed = list(sandbox_ids)
        for sandbox_id in followed:
            self._followers[sandbox_id] += 1
            self._callers[sandbox_id] = caller
        self._asked.set()
        try:
            yield
        finally:
            for sandbox_id in followed:
                self._followers[sandbox_id] -= 1
                if not self._followers[sandbox_id]:
                    del self._followers[sandbox_id], self._callers[sandbox_id]

    async def run(self) -> None:
        """See to it now and then, and whenever somebody comes, until cancelled."""
        while True:
            try:
                async with asyncio.timeout(self._look_every.total_seconds()):
                    await self._asked.wait()
            except TimeoutError:
                pass
            self._asked.clear()
            try:
                await self._look()
            except OUTAGES as error:
                log.warning("logs of services not looked after error=%r", error)

    async def _look(self) -> None:
        callers = dict(self._callers)
        turns = asyncio.Semaphore(_AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for sandbox_id, caller in callers.items():
                group.create_task(self._record(caller, sandbox_id, turns))
        async with without_transaction(self._sessions) as session:
            services = ServiceLogRepository(session)
            if callers:
                await services.want(list(callers), at_least=self._wanted_for)
            unwanted = await services.list_unwanted(new=self._wanted_for, limit=_UNWANTED_AT_ONCE)
        for command in unwanted:
            await self._end(command)

    async def _record(self, caller: Caller, sandbox_id: str, turns: asyncio.Semaphore) -> None:
        """Begin to record what is not recorded yet of a sandbox, if that runs."""
        async with turns:
            try:
                await self._begin_missing(caller, sandbox_id)
            except (SandboxError, *OUTAGES) as error:
                log.info("logs of services not recorded sandbox_id=%s error=%r", sandbox_id, error)

    async def _begin_missing(self, caller: Caller, sandbox_id: str) -> None:
        sandbox = await self._controller.get(caller, sandbox_id)
        if sandbox.state is not State.RUNNING:
            return
        used = self._using.usable(sandbox)
        files = _logs_among(await _list(used.backend.files(used.access, user=_READER)))
        if not files:
            return
        async with without_transaction(self._sessions) as session:
            known = await ServiceLogRepository(session).list_last(sandbox_id, just=_TRY_AGAIN)
        for name, size in files.items():
            last = known.get(name)
            if last is None or _may_begin_again(last):
                await self._begin(caller, sandbox_id, name, size, last)

    async def _begin(
        self, caller: Caller, sandbox_id: str, name: str, size: int, last: LastRecording | None
    ) -> None:
        """Record a log from where that was last left."""
        done = 0 if last is None else _position_after(last.command)
        start = done if done <= size else 0  # it is another file by now
        request = CommandRequest(
            cmd=f"exec tail -c +{start + 1} -F {DIRECTORY}/{name}.log 2>/dev/null",
            kind=CommandKind.SERVICE,
            name=name,
            user=_READER,
            background=True,
        )
        with suppress(IntegrityError):  # another server was first
            await self._commands.start(caller, sandbox_id, request, wait=_NO_WAIT)

    async def _end(self, command: Command) -> None:
        """End a recording; in a sandbox that does not run it is left, since it costs nothing there."""
        async with without_transaction(self._sessions) as session:
            found = await SandboxRepository(session).find(command.sandbox_id)
        if found is None or found[0].state is not State.RUNNING:
            return
        try:
            used = self._using.usable(found[0])
            processes = used.backend.processes(used.access)
            await processes.send_signal(command.id, ProcessSignal.KILL)
        except SandboxError as error:
            log.info("recording not ended command_id=%s error=%r", command.id, error)


async def _list(files: Files) -> Sequence[Entry]:
    try:
        return await files.list_below(DIRECTORY, depth=1, limit=_MOST_LISTED)
    except PathNotFound:
        return ()


def _logs_among(entries: Sequence[Entry]) -> Mapping[str, int]:
    """Give the sizes of the services' logs by their names."""
    found = {
        match[1]: entry.size
        for entry in sorted(entries, key=lambda entry: entry.name)
        if entry.type is EntryType.FILE and (match := _FILE.fullmatch(entry.name))
    }
    return dict(islice(found.items(), _MOST_FILES))


def _may_begin_again(last: LastRecording) -> bool:
    if last.command.state in COMMAND_LIVING:
        return False
    return last.command.state in _CUT_SHORT or not last.has_just_ended


def _position_after(command: Command) -> int:
    """Tell how far a recording has read its file."""
    began = _BEGAN_AT.search(command.cmd)
    return 0 if began is None else int(began[1]) - 1 + command.stdout_size
