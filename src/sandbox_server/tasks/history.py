import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from sandbox_server.db.models import (
    ForgeCheck,
    PullRequest,
    Repository,
    Sandbox,
    Task,
    TaskAttempt,
    TaskMessage,
    TaskRun,
    TaskSave,
)
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import (
    InvalidRequest,
    InvalidStage,
    PullNotFound,
    SandboxNotFound,
    SaveNotFound,
)
from sandbox_server.domain.requests import Idempotency, SandboxRequest
from sandbox_server.domain.state import State
from sandbox_server.domain.tasks.repositories import RepositorySettings
from sandbox_server.forges.service import Forges
from sandbox_server.git.bare import BareRepository, TaskRepositories
from sandbox_server.git.checkouts import CheckoutRequest, Checkouts
from sandbox_server.git.diffs import ChangedFile, DiffText
from sandbox_server.log.source import Page, Source
from sandbox_server.repositories.service import Repositories
from sandbox_server.sandboxes.service import SandboxController
from sandbox_server.tasks.history_repository import TaskHistoryRepository
from sandbox_server.tasks.repository import TaskRepository
from sandbox_server.tasks.save_repository import TaskSaveRepository
from sandbox_server.tasks.saves import TaskSaves
from sandbox_server.tasks.wording import identity_of

_POINT = re.compile(r"base|head|published|(run|save|attempt):([1-9][0-9]{0,8})")
_WAIT = timedelta(seconds=60)


@dataclass(frozen=True, kw_only=True)
class Difference:
    """The difference between two states of the work."""

    old: str
    new: str
    files: Sequence[ChangedFile]
    text: DiffText


class TaskHistory:
    """Read the work of a task from the server's copy, whether or not its sandbox exists."""

    def __init__(
        self,
        sessions: Sessions,
        *,
        controller: SandboxController,
        saves: TaskSaves,
        repositories: Repositories,
        task_repositories: TaskRepositories,
        checkouts: Checkouts,
        forges: Forges,
    ) -> None:
        self._sessions = sessions
        self._controller = controller
        self._saves = saves
        self._repositories = repositories
        self._task_repositories = task_repositories
        self._checkouts = checkouts
        self._forges = forges

    async def list_runs(
        self, caller: Caller, task_id: str, *, after: int, limit: int
    ) -> Sequence[TaskRun]:
        async with without_transaction(self._sessions) as session:
            await TaskRepository(session).get(task_id, tenant_id=caller.tenant_id)
            return await TaskHistoryRepository(session).list_runs(task_id, after=after, limit=limit)

    async def list_attempts(self, caller: Caller, task_id: str) -> Sequence[TaskAttempt]:
        async with without_transaction(self._sessions) as session:
            await TaskRepository(session).get(task_id, tenant_id=caller.tenant_id)
            return await TaskRepository(session).list_attempts(task_id)

    async def list_messages(
        self, caller: Caller, task_id: str, *, after: str, limit: int
    ) -> Sequence[TaskMessage]:
        async with without_transaction(self._sessions) as session:
            await TaskRepository(session).get(task_id, tenant_id=caller.tenant_id)
            return await TaskHistoryRepository(session).list_messages(
                task_id, after=after, limit=limit
            )

    async def read_log(self, source: Source, *, after: int, limit: int) -> Page:
        return await source.read(self._sessions, after=after, limit=limit)

    async def get_pull(self, caller: Caller, task_id: str) -> PullRequest:
        async with without_transaction(self._sessions) as session:
            await TaskRepository(session).get(task_id, tenant_id=caller.tenant_id)
            found = await TaskRepository(session).find_pull(task_id)
        if found is None:
            raise PullNotFound(task_id)
        return found

    async def list_checks(self, caller: Caller, task_id: str) -> Sequence[ForgeCheck]:
        """List the checks of the published head at the forge."""
        async with without_transaction(self._sessions) as session:
            task = (await TaskRepository(session).get(task_id, tenant_id=caller.tenant_id)).row
            if task.published_sha is None:
                return []
            return await TaskHistoryRepository(session).list_checks(
                task.repository_id, task.published_sha
            )

    async def list_saves(
        self, caller: Caller, task_id: str, *, after: int, limit: int
    ) -> Sequence[TaskSave]:
        """List saves, oldest first."""
        async with without_transaction(self._sessions) as session:
            await TaskRepository(session).get(task_id, tenant_id=caller.tenant_id)
            return await TaskSaveRepository(session).list_page(task_id, after=after, limit=limit)

    async def read_save(self, caller: Caller, task_id: str, number: int) -> bytes:
        """Read a save as a git bundle."""
        await self._get(caller, task_id)
        return await self._saves.read(await self._saves.get(task_id, number))

    async def save_now(self, caller: Caller, task_id: str) -> TaskSave:
        """Save the work as it is now; a paused sandbox is not resumed, since its work was saved before."""
        task = await self._get(caller, task_id)
        if task.sandbox_id is None or task.base_sha is None:
            raise InvalidStage(task.stage, "saves: it has no sandbox with a checkout")
        try:
            row = await self._controller.get(caller, task.sandbox_id)
        except SandboxNotFound:
            raise InvalidStage(task.stage, "saves: its sandbox is gone") from None
        last = await self._saves.find_last(task_id)
        if row.state is State.PAUSED and last is not None:
            return last
        used = await self._controller.look_into(caller, task.sandbox_id)
        return await self._saves.take(task, used, cause="request")

    async def restore(
        self,
        caller: Caller,
        task_id: str,
        number: int,
        *,
        template: str | None = None,
        idempotency: Idempotency | None = None,
    ) -> Sandbox:
        """Create a sandbox of the caller's own with the work of a save in it; the task goes on in its own."""
        task = await self._get(caller, task_id)
        save = await self._saves.get(task_id, number)
        repository = await self._repositories.row(task.repository_id)
        settings = RepositorySettings.of(task.settings)
        wanted = SandboxRequest(
            template=template or settings.template,
            capabilities=frozenset() if template else frozenset(settings.capabilities),
            metadata={"restored_from": f"{task_id}/{number}"},
            envs=self._repositories.envs_of(repository),
        )
        row = await self._controller.create(caller, wanted, idempotency=idempotency, wait=_WAIT)
        used = await self._controller.use(caller, row.id, wait=_WAIT)
        await self._checkouts.check_out(used, await self._checkout(task, repository))
        await self._saves.restore(task, used, save)
        return row

    async def diff(
        self, caller: Caller, task_id: str, *, old: str, new: str, path: str | None
    ) -> Difference:
        """Compare two of: `base`, `head`, `published`, `run:N`, `save:N`, `attempt:N`."""
        task = await self._get(caller, task_id)
        repository = await self._repositories.row(task.repository_id)
        async with self._task_repositories.open(repository, task.id) as bare:
            old_sha = await self._bring(task, bare, old)
            new_sha = await self._bring(task, bare, new)
            difference = Difference(
                old=old_sha,
                new=new_sha,
                files=await bare.changed_files(old_sha, new_sha),
                text=await bare.diff(old_sha, new_sha, path=path),
            )
        if task.ended_at is not None:
            await self._task_repositories.remove(task.id)
        if path is None:
            return difference
        return replace(difference, files=[one for one in difference.files if one.path == path])

    async def _bring(self, task: Task, bare: BareRepository, point: str) -> str:
        """Find the commit of a point, and take its objects out of the save that has them."""
        found = _POINT.fullmatch(point)
        if found is None:
            raise InvalidRequest(
                "Use `base`, `head`, `published`, `run:N`, `save:N` or `attempt:N`."
            )
        if point == "base":
            return _require(task.base_sha, point)
        save = await self._find_save(task, found)
        if save is None:
            raise SaveNotFound(point)
        await bare.import_bundle(await self._saves.read(save))
        if point == "published":
            return _require(task.published_sha, point)
        return save.sha

    async def _find_save(self, task: Task, found: re.Match[str]) -> TaskSave | None:
        kind, number = found.groups()
        if kind == "save":
            return await self._saves.get(task.id, int(number))
        async with without_transaction(self._sessions) as session:
            saves = TaskSaveRepository(session)
            if kind == "run":
                return await saves.find_of_run(task.id, int(number))
            attempt = int(number) if kind == "attempt" else 0
            return await saves.find_last(task.id, attempt=attempt)

    async def _get(self, caller: Caller, task_id: str) -> Task:
        async with without_transaction(self._sessions) as session:
            return (await TaskRepository(session).get(task_id, tenant_id=caller.tenant_id)).row

    async def _checkout(self, task: Task, repository: Repository) -> CheckoutRequest:
        assert task.branch is not None
        return CheckoutRequest(
            repository=repository,
            directory=task.directory,
            branch=task.branch,
            base_ref=task.base_ref,
            base_sha=task.base_sha,
            identity=identity_of(await self._forges.find_row(repository.forge_id)),
        )


def _require(sha: str | None, point: str) -> str:
    if sha is None:
        raise SaveNotFound(point)
    return sha
