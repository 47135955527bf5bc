"""Large files of Git LFS in tasks: kept in saves, and sent to the forge before the commits that point to them.

What git-lfs leaves in a checkout is made by hand; tests/server/git has it itself.
"""

from dataclasses import replace

import pytest
from sqlalchemy import select

from sandbox_server.db.models import Repository, TaskLargeFilePart, TaskSave
from sandbox_server.domain.errors import SaveFailed
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.tasks.stages import SaveKind
from sandbox_server.git.lfs.protocol import LfsObject
from sandbox_server.git.work import TakenWork
from sandbox_server.tasks.save_repository import TaskSaveRepository
from tests.server.git.lfs_store import oid_of, pointer_of
from tests.server.support import sandbox_rows
from tests.server.support.memory_forge import add_forge, add_tenant
from tests.server.support.task_rows import add_task

FILM = bytes(range(256)) * 5000
OID = oid_of(FILM)
_STORED = f".git/lfs/objects/{OID[:2]}/{OID[2:4]}/{OID}"
_MAKE = f"""\
python3 -c 'import sys; sys.stdout.buffer.write(bytes(range(256)) * 5000)' >/tmp/film
mkdir -p $(dirname {_STORED}) && cp /tmp/film {_STORED}
"""
_COMMIT = f"""\
printf '{pointer_of(FILM)}' >film.mp4
git add film.mp4 && git commit -qm 'feat: add a film'
"""


@pytest.fixture
async def tasks(pushed_tasks, pushed_forge):
    await pushed_tasks.put_forge(**pushed_forge.forge("git"))
    await pushed_tasks.add_repository()
    return pushed_tasks


async def parts_of(tasks):
    async with tasks.components.sessions() as session:
        return list(await session.scalars(select(TaskLargeFilePart)))


@pytest.mark.needs_engine
async def test_large_file__outlives_its_sandbox_and_is_at_the_forge_before_its_commit(
    tasks, pushed_forge
):
    command = (
        f'if grep -q "You were interrupted" "$TASK_PROMPT_FILE"; then test -s {_STORED} && touch b; '
        f"else set -e; {_MAKE}{_COMMIT}echo 1 >a; echo 1 >committed; sleep 300; fi"
    )
    task = await tasks.create(command)
    await tasks.until_run(task["id"])
    lost = (await tasks.task(task["id"]))["sandbox_id"]
    await tasks.until_file(lost, "/home/user/widgets/committed")
    await tasks.post(f"/v1/tasks/{task['id']}/saves")
    [first, second] = await parts_of(tasks)
    assert {first.oid, second.oid} == {OID}
    assert FILM[:256] not in first.content_sealed
    await tasks.api.delete(f"/v1/sandboxes/{lost}")
    done = await tasks.until(task["id"], "done")
    assert pushed_forge.head(done["branch"]) == done["published_sha"]
    assert pushed_forge.server.lfs.contents == {OID: FILM}
    assert len(await parts_of(tasks)) == 2
    async with tasks.components.sessions() as session:
        saves = list(await session.scalars(select(TaskSave)))
    assert len(saves) > 1
    assert {tuple(save.large_files) for save in saves} == {(OID,)}


@pytest.mark.needs_engine
async def test_large_file__without_its_content_stops_publishing_until_the_forge_has_it(
    tasks, pushed_forge
):
    task = await tasks.create(_COMMIT)
    waiting = await tasks.until(task["id"], "waiting-for-user")
    assert waiting["waits_for"]["kind"] == "publication"
    assert "film.mp4" in waiting["stage_reason"]
    assert pushed_forge.branches() == ["main"]
    pushed_forge.server.lfs.add(FILM)
    await tasks.post(f"/v1/tasks/{task['id']}/retry")
    done = await tasks.until(task["id"], "done", after=waiting)
    assert pushed_forge.head(done["branch"]) == done["published_sha"]


async def test_large_file__is_stored_once_and_goes_with_the_last_save_that_points_to_it(
    sessions, large_files
):
    task_id = await add_plain_task(sessions)
    taken = taken_with(FILM)
    for number in (1, 2):
        parts = await large_files.seal(taken, task_id)
        async with sessions.begin() as session:
            await large_files.store(session, task_id, taken, parts)
            saves = TaskSaveRepository(session)
            await saves.add(save_of(task_id, number, large_files=[OID]), [])
            await saves.remove_old(task_id, keep=1)
    assert await large_files.read(task_id, OID) == FILM
    async with sessions.begin() as session:
        assert len(list(await session.scalars(select(TaskLargeFilePart)))) == 2
        saves = TaskSaveRepository(session)
        await saves.add(save_of(task_id, 3), [])
        await saves.remove_old(task_id, keep=1)
    assert await large_files.read(task_id, OID) is None
    with pytest.raises(SaveFailed, match="save again"):
        async with sessions.begin() as session:
            await large_files.store(session, task_id, replace(taken, contents={}), [])


async def add_plain_task(sessions):
    tenant_id = await add_tenant(sessions)
    repository = Repository(
        id=new_id(),
        tenant_id=tenant_id,
        forge_id=await add_forge(sessions, tenant_id),
        external_id="1",
        full_name="acme/widgets",
        default_branch="main",
        url="https://forge.example/acme/widgets",
        settings={},
    )
    await sandbox_rows.add(sessions, repository)
    return await add_task(sessions, repository)


def save_of(task_id, number, **columns):
    return TaskSave(
        task_id=task_id,
        number=number,
        kind="head",
        cause="request",
        sha="a" * 40,
        tree="b" * 40,
        mark="c" * 40,
        files=1,
        size=1,
        **columns,
    )


def taken_with(content):
    large = LfsObject(oid=oid_of(content), size=len(content))
    return TakenWork(
        kind=SaveKind.HEAD,
        sha="a" * 40,
        head_sha="a" * 40,
        branch="task-1",
        tree="b" * 40,
        mark="c" * 40,
        base_sha=None,
        files=1,
        left_out=(),
        bundle=b"",
        large=[large],
        contents={large.oid: content},
    )
