"""Overlaps of tasks, with real git and a database, and without sandboxes."""

from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import delete, update

from sandbox_server.db.models import Repository, Task, TaskSave, TaskSavePart
from sandbox_server.domain.errors import RepositoryNotFound
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.tasks.stages import SaveKind
from sandbox_server.git.bare import TaskRepositories
from sandbox_server.git.mirrors import Mirrors
from sandbox_server.git.work import TakenWork
from sandbox_server.repositories.service import Repositories
from sandbox_server.tasks.overlaps.api import view_overlaps
from sandbox_server.tasks.overlaps.service import MOST_TASKS, TaskOverlaps
from sandbox_server.tasks.saves import TaskSaves
from tests.server.git.git_server import running_git_server
from tests.server.git.work_trees import WorkTree, git
from tests.server.support.in_process_server import caller_of
from tests.server.support.memory_forge import MemoryForges, add_forge, add_tenant
from tests.server.support.task_rows import add_task

NAME = "acme/widgets"


@dataclass
class TreeWork:
    """Take the work of a task out of a clone on this machine instead of a sandbox."""

    tree: WorkTree

    async def take(self, _used, _directory, base_sha, _known, *, find_kept):
        sha = self.tree.git("rev-parse", "HEAD")
        return TakenWork(
            kind=SaveKind.HEAD,
            sha=sha,
            head_sha=sha,
            branch="main",
            tree=self.tree.git("rev-parse", "HEAD^{tree}"),
            mark=new_id(),
            base_sha=base_sha,
            files=len(self.tree.git("diff", "--name-only", base_sha, "HEAD").splitlines()),
            left_out=(),
            bundle=self.tree.bundle(base_sha, "HEAD"),
        )


@pytest.fixture
def forge(tmp_path):
    (tmp_path / "served").mkdir()
    with running_git_server(tmp_path / "served") as server:
        yield server


@pytest.fixture
def tree(forge, tmp_path):
    """Seed the repository of the forge, and keep the clone of its author."""
    path = forge.path(NAME)
    path.mkdir(parents=True)
    git(path, "init", "--quiet", "--bare", "--initial-branch=main")
    git(path, "config", "http.receivepack", "true")
    tree = WorkTree(tmp_path / "author")
    tree.commit("feat: begin", README__md="one\n", count__py="1\n")
    tree.push(path, "main")
    return tree


@pytest.fixture
def add_repository(sessions):
    async def add(tenant_id: str) -> Repository:
        row = Repository(
            id=new_id(),
            tenant_id=tenant_id,
            forge_id=await add_forge(sessions, tenant_id),
            external_id="1",
            full_name=NAME,
            default_branch="main",
            url=f"https://forge.example/{NAME}",
            settings={},
        )
        async with sessions.begin() as session:
            session.add(row)
        return row

    return add


@pytest.fixture
async def repository(sessions, add_repository):
    return await add_repository(await add_tenant(sessions))


@pytest.fixture
def caller(repository):
    return caller_of(repository.tenant_id)


@pytest.fixture
def saves(sessions, vault, tree, large_files):
    work: Any = TreeWork(tree)  # no sandbox is needed
    return TaskSaves(sessions, vault, work, large_files)


@pytest.fixture
def overlaps(sessions, vault, saves, forge, tmp_path):
    async def credentials(repository, _access):
        return forge.credential(repository.full_name)

    return TaskOverlaps(
        sessions,
        saves=saves,
        repositories=Repositories(sessions, vault, MemoryForges(sessions)),
        task_repositories=TaskRepositories(Mirrors(tmp_path / "mirrors", credentials, limit=2**30)),
    )


@pytest.fixture
def work(sessions, saves, tree, repository):
    """Add a task whose saved work is a commit with these files."""

    async def add(
        *, of=repository, message="feat: work", base="main", columns=None, **files
    ) -> str:
        base_sha = tree.git("rev-parse", base)
        tree.git("checkout", "--quiet", "--detach", base)
        tree.commit(message, **files)
        columns = {"stage": "working", **(columns or {})}
        task_id = await add_task(sessions, of, base_sha=base_sha, **columns)
        async with sessions() as session:
            task = await session.get_one(Task, task_id)
        await saves.take(task, None, cause="test")
        return task_id

    return add


async def pairs(overlaps, caller, repository=None):
    found = view_overlaps(await overlaps.find(caller, repository))
    return [
        (each.kind, {side.task_id for side in each.tasks}, each.files) for each in found.items
    ], found


async def test_tasks_that_change_the_same_line_differently_conflict(overlaps, caller, work):
    one, other = await work(count__py="2\n"), await work(count__py="3\n", README__md="two\n")
    apart = await work(new__py="new\n")
    [pair], found = await pairs(overlaps, caller)
    assert pair == ("conflict", {one, other}, ["count.py"])
    assert (found.compared, found.is_cut, found.skipped) == (3, False, [])
    assert apart not in pair[1]
    assert all(side.saved_at and side.save == 1 for side in found.items[0].tasks)


async def test_tasks_with_the_same_changes_are_identical_whatever_their_base_and_messages(
    overlaps, caller, work, tree, forge
):
    one = await work(message="fix: a", count__py="2\n")
    tree.git("checkout", "--quiet", "main")
    tree.commit("docs: elsewhere", README__md="moved on\n")
    tree.push(forge.path(NAME), "main")
    other = await work(message="fix: b", count__py="2\n", columns={"stage": "in-review"})
    [pair], found = await pairs(overlaps, caller)
    assert pair == ("identical", {one, other}, ["count.py"])
    assert found.items[0].file_count == 1


async def test_a_file_and_a_directory_of_one_name_conflict(overlaps, caller, work):
    await work(data="a file\n")
    await work(data___inside__txt="a file in a directory\n")
    [(kind, _, files)], _ = await pairs(overlaps, caller)
    assert kind == "conflict"
    assert files


async def test_only_open_tasks_with_one_base_branch_are_compared(overlaps, caller, work, sessions):
    await work(count__py="2\n")
    await work(count__py="3\n", columns={"base_ref": "release"})
    ended = await work(count__py="4\n")
    async with sessions.begin() as session:
        ends = {"stage": "done", "ended_at": Task.created_at}
        await session.execute(update(Task).where(Task.id == ended).values(ends))
    found, told = await pairs(overlaps, caller)
    assert found == []
    assert told.compared == 2


async def test_the_latest_save_counts(overlaps, caller, work, saves, sessions, tree):
    base = tree.git("rev-parse", "main")
    one, other = await work(count__py="2\n"), await work(count__py="3\n")
    assert [pair[1] for pair in (await pairs(overlaps, caller))[0]] == [{one, other}]
    tree.git("checkout", "--quiet", "--detach", base)
    tree.commit("feat: elsewhere", new__py="new\n")
    async with sessions() as session:
        await saves.take(await session.get_one(Task, other), None, cause="test")
    found, told = await pairs(overlaps, caller)
    assert (found, told.compared) == ([], 2)


async def test_an_unreadable_save_is_named_and_the_others_are_compared(
    overlaps, caller, work, sessions
):
    one, other = await work(count__py="2\n"), await work(count__py="3\n")
    broken = await work(count__py="4\n")
    async with sessions.begin() as session:
        parts = delete(TaskSavePart).where(TaskSavePart.task_id == broken)
        await session.execute(parts)
    [pair], found = await pairs(overlaps, caller)
    assert pair[1] == {one, other}
    assert found.compared == 2
    assert [each.task_id for each in found.skipped] == [broken]


async def test_pairs_that_are_known_are_not_compared_again(overlaps, caller, work, saves):
    await work(count__py="2\n")
    await work(count__py="3\n")
    first, _ = await pairs(overlaps, caller)
    reads: list[TaskSave] = []
    saves.read = reads.append
    assert (await pairs(overlaps, caller))[0] == first
    assert reads == []


async def test_nothing_is_left_on_the_disk_of_the_server(overlaps, caller, work, tmp_path):
    await work(count__py="2\n")
    await work(count__py="3\n")
    await pairs(overlaps, caller)
    assert list((tmp_path / "mirrors" / "tasks").glob("*.git")) == []


async def test_more_tasks_than_the_limit_are_cut(overlaps, caller, work):
    for number in range(MOST_TASKS + 1):
        await work(count__py=f"{number + 2}\n")
    found, told = await pairs(overlaps, caller)
    assert told.is_cut
    assert told.compared == MOST_TASKS
    assert len(found) == MOST_TASKS * (MOST_TASKS - 1) // 2


async def test_a_tenant_sees_neither_tasks_nor_repositories_of_another(
    overlaps, caller, work, sessions, add_repository, repository
):
    """Both have the same repository of the same forge, and the same commits."""
    tenant_id = await add_tenant(sessions)
    theirs = await add_repository(tenant_id)
    mine = {await work(count__py="2\n"), await work(count__py="3\n")}
    their = {await work(of=theirs, count__py="2\n"), await work(of=theirs, count__py="3\n")}
    [pair], told = await pairs(overlaps, caller)
    assert (pair[1], told.compared) == (mine, 2)
    [pair], told = await pairs(overlaps, caller_of(tenant_id), NAME)
    assert (pair[1], told.items[0].repository_id) == (their, theirs.id)
    with pytest.raises(RepositoryNotFound):
        await overlaps.find(caller, theirs.id)
    assert (await pairs(overlaps, caller, repository.id))[0][0][1] == mine
