import logging
from contextlib import suppress
from datetime import datetime, timedelta

from sandbox_server.db.idempotency import IdempotencyRepository
from sandbox_server.db.models import Sandbox, Task
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.errors import (
    InvalidTransition,
    SandboxError,
    SandboxFailed,
    SandboxNotFound,
    SandboxPaused,
    StartFailed,
)
from sandbox_server.domain.requests import Idempotency, SandboxRequest
from sandbox_server.domain.state import ENDED, OnTimeout, State
from sandbox_server.repositories.prepared import (
    RepositoryPreparations,
    find_prepared,
    template_of,
)
from sandbox_server.repositories.service import Repositories
from sandbox_server.sandboxes.sandbox_access import UsableSandbox
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.tasks.stages.work import Blocked, SandboxLost, TaskWork, WaitKind
from sandbox_server.tasks.transitions import TaskMove, TaskTransitions

log = logging.getLogger(__name__)

_WAIT = timedelta(seconds=15)
_AWAKE_FOR = timedelta(minutes=10)
_LIFETIME = timedelta(hours=2)
_EXTENDED_EVERY = timedelta(minutes=1)


class TaskSandboxes:
    """The sandboxes of tasks: one at a time, which is replaced if it is lost."""

    def __init__(
        self,
        sessions: Sessions,
        controller: SandboxController,
        repositories: Repositories,
        transitions: TaskTransitions,
    ) -> None:
        self._sessions = sessions
        self._controller = controller
        self._repositories = repositories
        self._transitions = transitions

    async def create(self, work: TaskWork) -> None:
        """Create the next sandbox of a task, or find the one that a crash has left without a note."""
        task, once = work.task, _once(work.task)
        number = task.sandboxes + 1
        try:
            row = await self._controller.create(
                work.caller, self.request(work), idempotency=once, wait=_WAIT
            )
        except (StartFailed, InvalidTransition) as error:
            # The next attempt needs a key of its own.
            started_from = await self._forget_prepared(work)
            await self._transitions.commit(task, TaskMove(values={"sandboxes": number}))
            if started_from is not None:
                log.warning("prepared snapshot not usable task_id=%s error=%s", task.id, error)
                return
            raise Blocked(WaitKind.SANDBOX, f"The sandbox did not start: {error}") from None
        values = {"sandbox_id": row.id, "sandboxes": number, "sandbox_ready": False}
        await self._transitions.commit(task, TaskMove(values=values))

    async def is_prepared(self, work: TaskWork) -> bool:
        """Whether the sandbox started from the prepared snapshot, in which the setup has run."""
        row = await self.find(work)
        return row is not None and row.template == work.repository.prepared_snapshot

    async def use(self, work: TaskWork) -> UsableSandbox:
        """Return the running sandbox of a task; a paused one is resumed."""
        sandbox_id = _id_of(work)
        try:
            with suppress(SandboxPaused):
                return await self._controller.use(work.caller, sandbox_id, wait=_WAIT)
            await self._controller.resume(work.caller, sandbox_id, wait=_WAIT)
            return await self._controller.use(work.caller, sandbox_id, wait=_WAIT)
        except (SandboxNotFound, SandboxFailed, InvalidTransition) as error:
            raise SandboxLost(str(error)) from None

    async def keep_awake(self, work: TaskWork) -> None:
        """Postpone idle pause and expiry while a run works; a paused sandbox is resumed."""
        row = await self.find(work)
        if row is None or row.state in ENDED:
            raise SandboxLost("The sandbox of the run has ended.")
        if row.state is not State.RUNNING:
            await self.use(work)
        elif _is_extended(row, work.now):
            return
        with suppress(InvalidTransition):
            await self._controller.keep_awake(
                work.caller, row.id, awake_for=_AWAKE_FOR, timeout=_LIFETIME
            )

    async def find(self, work: TaskWork) -> Sandbox | None:
        if work.task.sandbox_id is None:
            return None
        try:
            return await self._controller.get(work.caller, work.task.sandbox_id)
        except SandboxNotFound:
            return None

    async def pause(self, work: TaskWork) -> None:
        """Pause the sandbox while the task waits; its work is saved before."""
        row = await self.find(work)
        if row is not None and row.state is State.RUNNING:
            try:
                await self._controller.pause(work.caller, row.id, wait=_WAIT)
            except SandboxError as error:  # the task can wait with a running sandbox as well
                log.info("sandbox not paused task_id=%s error=%s", work.task.id, error)

    async def delete(self, work: TaskWork) -> bool:
        """Delete the sandbox, also one that a crash has left without a note; returns whether it is gone."""
        row = await self.find(work) or await self._find_unnoted(work)
        if row is None or row.state in ENDED:
            return True
        row = await self._controller.delete(work.caller, row.id, wait=_WAIT)
        return row.state in ENDED

    async def _find_unnoted(self, work: TaskWork) -> Sandbox | None:
        async with without_transaction(self._sessions) as session:
            found = await IdempotencyRepository(session).find(work.task.tenant_id, _once(work.task))
        return None if found is None else await self._controller.get(work.caller, found)

    async def _forget_prepared(self, work: TaskWork) -> str | None:
        """Give a prepared snapshot up from which the sandbox did not start; returns its id."""
        row, snapshot_id = await self._find_unnoted(work), work.repository.prepared_snapshot
        if row is None or snapshot_id is None or row.template != snapshot_id:
            return None
        preparations = RepositoryPreparations(self._sessions)
        await preparations.forget(work.repository.id, snapshot_id)
        return snapshot_id

    def request(self, work: TaskWork) -> SandboxRequest:
        """Describe the sandbox of a task."""
        task, settings = work.task, work.settings
        return SandboxRequest(
            template=template_of(settings, has_agent=task.agent is not None),
            capabilities=frozenset(settings.capabilities),
            prepared=find_prepared(work.repository, setup=settings.setup, directory=task.directory),
            metadata={"task": task.id, "repository": work.repository.full_name},
            envs=self._repositories.envs_of(work.repository),
            timeout=_LIFETIME,
            on_timeout=OnTimeout.PAUSE,
            priority=task.priority,
        )


def _is_extended(row: Sandbox, now: datetime) -> bool:
    """Return whether both deadlines were postponed lately: each time is an event in the log."""
    awake, expiry = row.awake_until, row.expires_at
    is_awake = awake is not None and awake > now + _AWAKE_FOR - _EXTENDED_EVERY
    return is_awake and (expiry is None or expiry > now + _LIFETIME - _EXTENDED_EVERY)


def _once(task: Task) -> Idempotency:
    """Name the next sandbox of a task, so that it is created once."""
    number = task.sandboxes + 1
    key = f"task/{task.id}/sandbox/{number}"
    return Idempotency.of(key, method="CREATE", path=task.id, body=number)


def _id_of(work: TaskWork) -> str:
    if work.task.sandbox_id is None:
        raise SandboxLost("The task has no sandbox.")
    return work.task.sandbox_id
