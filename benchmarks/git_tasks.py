"""Checkouts of a repository of 500 MB into sandboxes, and saves of the work in them."""

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Awaitable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from statistics import median

from benchmarks.engine import Engine, started_engine
from benchmarks.git_forge import REPOSITORY, make_repository, run_git, serving
from benchmarks.report import Figure
from benchmarks.task_starts import task_starts
from benchmarks.timing import timed
from sandbox_server.db.models import Repository, Sandbox
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.tasks.forges import GitAccess, GitCredential
from sandbox_server.git.bare import TaskRepositories
from sandbox_server.git.checkouts import CheckoutRequest, Checkouts, Rung
from sandbox_server.git.inside import SEAL
from sandbox_server.git.mirrors import Mirrors
from sandbox_server.git.rewriting import Identity
from sandbox_server.git.work import SandboxWork, TakenWork
from sandbox_server.providers.e2b import E2BBackend
from sandbox_server.providers.protocol.provider import Endpoint, NewSandbox
from sandbox_server.sandboxes.sandbox_access import UsableSandbox

_ROUNDS = 3
_STARTS = 9
_SAVES = 9
_DIRECTORY = "/home/user/repository"
_HOUR = timedelta(hours=1)
_BEHIND = 20  # commits


async def tasks() -> AsyncIterator[Figure]:
    """Compare checkouts with a full clone from a forge at 200 Mbit/s, and time saves at 20,400 files."""
    await asyncio.to_thread(make_repository)
    with serving() as url:
        clone = await _median(_clone(url) for _ in range(_ROUNDS))
        yield Figure("full clone from the forge, no sandbox", clone, "s")
        async with started_engine() as engine, _bench(engine, url) as bench:
            fetch, _ = await timed(bench.mirrors.fetch(bench.repository))
            yield Figure("first fetch of the mirror", fetch / 1000, "s")
            async for figure in _checkouts(bench, clone):
                yield figure
            async for figure in _saves(bench):
                yield figure
            first, *others = await task_starts(engine, behind=_BEHIND, rounds=_ROUNDS + 1)
            yield _ratio("first task, until its agent runs / clone", first, clone)
            yield _ratio("another task, until its agent runs / clone", median(others), clone)


async def _checkouts(bench: "_Bench", clone: float) -> AsyncIterator[Figure]:
    full = await _median(bench.check_out(bench.checkouts, Rung.PACKS) for _ in range(_ROUNDS))
    yield _ratio("checkout by packs, all history / clone", full, clone)
    shallow = Checkouts(bench.mirrors, full_history=0)
    await bench.check_out(shallow, Rung.SHALLOW)  # makes the pack
    one = await _median(bench.check_out(shallow, Rung.SHALLOW) for _ in range(_ROUNDS))
    yield _ratio("checkout by packs, one commit / clone", one, clone)
    snapshot = await bench.prepare_snapshot()
    creates, updates = zip(*[await bench.start_from(snapshot) for _ in range(_STARTS)], strict=True)
    yield Figure("sandbox from a prepared snapshot", median(creates), "ms")
    yield _ratio(f"its update by {_BEHIND} commits / clone", median(updates), clone)
    ready = median(map(sum, zip((each / 1000 for each in creates), updates, strict=True)))
    yield _ratio("both: a sandbox with the repository / clone", ready, clone, target=0.01)


async def _saves(bench: "_Bench") -> AsyncIterator[Figure]:
    work, used = SandboxWork(), await bench.sandbox()
    done = await bench.checkouts.check_out(used, bench.request())
    inside = used.backend.inside(used.access)
    took: list[float] = []
    saves: list[TakenWork] = []
    for number in range(_SAVES):
        change = (
            f"cd {_DIRECTORY} && for n in 1 2 3 4 5; do echo {number} >>src/package$n/new; done"
        )
        await inside.run_command(change, timeout=timedelta(seconds=30))
        mark = saves[-1].mark if saves else None
        elapsed, taken = await timed(work.take(used, _DIRECTORY, done.base_sha, mark))
        assert taken is not None
        took.append(elapsed)
        saves.append(taken)
    last = saves[-1]
    yield Figure("save of 5 files of 20,400", median(took), "ms", target=500)
    idle = [
        (await timed(work.take(used, _DIRECTORY, done.base_sha, last.mark)))[0] for _ in range(5)
    ]
    yield Figure("save of nothing new", median(idle), "ms")
    yield Figure("size of the save", last.size / 1024, "KiB")
    async with TaskRepositories(bench.mirrors).open(bench.repository, "bench") as bare:
        elapsed, _ = await timed(bare.import_bundle(last.bundle))
        yield Figure("verification of the save", elapsed, "ms")
        elapsed, _ = await timed(bare.merge_conflicts(last.sha, done.base_sha))
        yield Figure("conflicts of two commits", elapsed, "ms")
    other = await bench.sandbox()
    await bench.checkouts.check_out(other, bench.request())
    elapsed, _ = await timed(work.restore(other, _DIRECTORY, last.bundle))
    yield Figure("restore into a checkout", elapsed, "ms")


@dataclass(frozen=True)
class _Bench:
    """The repository, its mirror, and a provider of sandboxes."""

    backend: E2BBackend
    mirrors: Mirrors
    checkouts: Checkouts
    repository: Repository

    async def sandbox(self, template: str = "base") -> UsableSandbox:
        wanted = NewSandbox(
            sandbox_id=new_id(), tenant_id="bench", template=template, timeout=_HOUR
        )
        access = await self.backend.create(wanted)
        row = Sandbox(id=wanted.sandbox_id, template=template)
        return UsableSandbox(row, self.backend, access)

    def request(self, branch: str = "task-1", base_sha: str | None = None) -> CheckoutRequest:
        return CheckoutRequest(
            repository=self.repository,
            directory=_DIRECTORY,
            branch=branch,
            base_ref="main",
            base_sha=base_sha,
            identity=Identity(name="Ada", email="ada@example.org"),
        )

    async def check_out(self, checkouts: Checkouts, rung: Rung) -> float:
        used = await self.sandbox()
        done = await checkouts.check_out(used, self.request(), max_age=_HOUR)
        assert done.rung is rung
        await self.backend.kill(used.access.provider_id)
        return done.seconds

    async def prepare_snapshot(self) -> str:
        used = await self.sandbox()
        older = run_git("rev-parse", f"main~{_BEHIND}", cwd=REPOSITORY)
        await self.checkouts.check_out(used, self.request("prepared", older), max_age=_HOUR)
        inside = used.backend.inside(used.access)
        sealed = await inside.run_command(SEAL, envs={"TARGET": _DIRECTORY}, timeout=_HOUR)
        assert sealed.exit_code == 0
        snapshot = await self.backend.snapshot(used.access.provider_id)
        await self.backend.kill(used.access.provider_id)
        self.repository.prepared_snapshot, self.repository.prepared_sha = snapshot, older
        return snapshot

    async def start_from(self, snapshot: str) -> tuple[float, float]:
        created, used = await timed(self.sandbox(snapshot))
        done = await self.checkouts.check_out(used, self.request(), max_age=_HOUR)
        assert done.rung is Rung.SNAPSHOT
        await self.backend.kill(used.access.provider_id)
        return created, done.seconds


@asynccontextmanager
async def _bench(engine: Engine, url: str) -> AsyncIterator[_Bench]:
    endpoint = Endpoint(
        name="bench",
        api_url=engine.url,
        api_key=engine.api_key,
        sandbox_url=engine.url,
        domain="localhost",
    )
    backend = E2BBackend(endpoint, installation_id=new_id())

    async def credentials(_repository: Repository, _access: GitAccess) -> GitCredential:
        return GitCredential(url=url)

    repository = Repository(
        id=new_id(), full_name="bench", default_branch="main", url=url, settings={}
    )
    mirrors = Mirrors(engine.state_dir / "mirrors", credentials, limit=2**34)
    try:
        yield _Bench(backend, mirrors, Checkouts(mirrors), repository)
    finally:
        await backend.close()


async def _clone(url: str) -> float:
    directory = Path(tempfile.mkdtemp(prefix="sandbox-bench-", dir="/var/tmp"))
    try:
        elapsed, _ = await timed(
            asyncio.to_thread(run_git, "clone", "--quiet", url, str(directory / "clone"))
        )
    finally:
        await asyncio.to_thread(shutil.rmtree, directory)
    return elapsed / 1000


async def _median(measured: Iterator[Awaitable[float]]) -> float:
    return median([await one for one in measured])


def _ratio(name: str, ours: float, clone: float, *, target: float = 1) -> Figure:
    return Figure(name, ours, "s", floor=clone, target=target)
