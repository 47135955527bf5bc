from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from sandbox_server.db.models import Repository
from sandbox_server.db.session import Sessions, without_transaction
from sandbox_server.domain.access import Caller
from sandbox_server.domain.errors import SandboxError
from sandbox_server.git.bare import BareRepository, TaskRepositories
from sandbox_server.repositories.service import Repositories
from sandbox_server.tasks.overlaps.comparison import Comparison, WorkComparer
from sandbox_server.tasks.overlaps.repository import OpenWork, OpenWorkRepository
from sandbox_server.tasks.saves import TaskSaves

MOST_TASKS = 20
"""20 tasks of one repository are 190 pairs."""

_MOST_KNOWN = 4096

Pair = tuple[OpenWork, OpenWork]
PairKey = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Two open tasks that would conflict, or whose changes are identical."""

    one: OpenWork
    other: OpenWork
    comparison: Comparison


@dataclass(kw_only=True)
class Overlaps:
    """The overlaps among the tasks that were compared."""

    compared: int = 0
    is_cut: bool = False
    found: list[Overlap] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    """Why a task could not be compared."""


class TaskOverlaps:
    """Predicts which open tasks would conflict, from their latest saves; no sandbox is needed."""

    def __init__(
        self,
        sessions: Sessions,
        *,
        saves: TaskSaves,
        repositories: Repositories,
        task_repositories: TaskRepositories,
    ) -> None:
        self._sessions = sessions
        self._saves = saves
        self._repositories = repositories
        self._task_repositories = task_repositories
        self._known: OrderedDict[PairKey, Comparison] = OrderedDict()

    async def find(self, caller: Caller, repository: str | None) -> Overlaps:
        """Compare the open tasks of a tenant, or those of one repository; tasks with different base branches are not."""
        works = await self._list_works(caller, repository)
        overlaps = Overlaps(is_cut=len(works) > MOST_TASKS)
        for of_one in _by_repository(works[:MOST_TASKS]).values():
            await self._compare(of_one, overlaps)
        overlaps.compared = len(works[:MOST_TASKS]) - len(overlaps.skipped)
        return overlaps

    async def _list_works(self, caller: Caller, repository: str | None) -> Sequence[OpenWork]:
        row = None
        if repository is not None:
            row = await self._repositories.find_named(caller.tenant_id, repository)
        async with without_transaction(self._sessions) as session:
            return await OpenWorkRepository(session).list_latest(
                caller.tenant_id,
                repository_id=None if row is None else row.id,
                limit=MOST_TASKS + 1,
            )

    async def _compare(self, works: Sequence[OpenWork], overlaps: Overlaps) -> None:
        pairs = [pair for pair in combinations(works, 2) if _have_one_base(*pair)]
        if not all(_key(*pair) in self._known for pair in pairs):
            await self._learn(works[0].repository, pairs, overlaps)
        for pair in pairs:
            known = self._known.get(_key(*pair))
            if known is not None and known.files:
                overlaps.found.append(Overlap(one=pair[0], other=pair[1], comparison=known))

    async def _learn(
        self, repository: Repository, pairs: Sequence[Pair], overlaps: Overlaps
    ) -> None:
        try:
            async with self._task_repositories.open_alone(repository) as bare:
                new = [pair for pair in pairs if _key(*pair) not in self._known]
                await self._bring(bare, new, overlaps)
                await self._compare_new(WorkComparer(bare), new, overlaps)
        except SandboxError as error:  # no mirror
            overlaps.skipped.update((work.task.id, str(error)) for pair in pairs for work in pair)

    async def _bring(self, bare: BareRepository, pairs: Iterable[Pair], overlaps: Overlaps) -> None:
        """Take in the saves of tasks; one that cannot be read is left out."""
        for work in {work.task.id: work for pair in pairs for work in pair}.values():
            try:
                await bare.import_bundle(await self._saves.read(work.save))
            except SandboxError as error:
                overlaps.skipped[work.task.id] = str(error)

    async def _compare_new(
        self, comparer: WorkComparer, pairs: Iterable[Pair], overlaps: Overlaps
    ) -> None:
        for one, other in pairs:
            if {one.task.id, other.task.id} & overlaps.skipped.keys():
                continue
            try:
                self._remember(_key(one, other), await comparer.compare(one, other))
            except SandboxError as error:  # histories without a common commit, for example
                overlaps.skipped[other.task.id] = str(error)

    def _remember(self, key: PairKey, comparison: Comparison) -> None:
        self._known[key] = comparison
        while len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)


def _by_repository(works: Iterable[OpenWork]) -> Mapping[str, list[OpenWork]]:
    found: dict[str, list[OpenWork]] = {}
    for work in works:
        found.setdefault(work.repository.id, []).append(work)
    return found


def _have_one_base(one: OpenWork, other: OpenWork) -> bool:
    return one.task.base_ref == other.task.base_ref


def _key(one: OpenWork, other: OpenWork) -> PairKey:
    """Identify a comparison by its commits; repositories belong to one tenant, so tenants share nothing."""
    points = sorted((work.save.sha, work.save.base_sha or "") for work in (one, other))
    return (one.repository.id, *points[0], *points[1])
