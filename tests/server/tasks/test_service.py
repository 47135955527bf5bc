"""Use cases of tasks, with a database and without a worker."""

import pytest
from sqlalchemy import select

from sandbox_server.db.models import Event, Forge, Job, Repository, Tenant
from sandbox_server.domain.errors import InvalidStage, TaskExists, TaskNotFound
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.requests import Idempotency
from sandbox_server.domain.tasks.stages import MessageOrigin, Stage, TaskSource, TaskTarget
from sandbox_server.repositories.service import Repositories
from sandbox_server.tasks.creation import TaskRequest
from sandbox_server.tasks.service import TaskQuery, Tasks
from sandbox_server.tasks.transitions import TaskChanged, TaskMove, TaskTransitions
from tests.server.support.in_process_server import caller_of
from tests.server.support.memory_forge import MemoryForges

ISSUE = TaskRequest(source=TaskSource.ISSUE, source_ref="7", requester="eve")


@pytest.fixture
async def tenant_id(sessions):
    tenant_id = new_id()
    async with sessions.begin() as session:
        session.add(Tenant(id=tenant_id, name=tenant_id, max_running=9, max_queued=9))
    return tenant_id


@pytest.fixture
async def repository(sessions, tenant_id):
    forge = Forge(
        id=new_id(),
        tenant_id=tenant_id,
        name="forge",
        kind="git",
        git_url="http://localhost",
        auth="none",
    )
    row = Repository(
        id=new_id(),
        tenant_id=tenant_id,
        forge_id=forge.id,
        external_id="1",
        full_name="acme/widgets",
        default_branch="main",
        url="http://localhost/acme/widgets",
        settings={"max_runs": 4, "deadline_s": 60},
    )
    async with sessions.begin() as session:
        session.add(forge)
        await session.flush()
        session.add(row)
    return row


@pytest.fixture
def tasks(sessions, vault):
    return Tasks(sessions, Repositories(sessions, vault, MemoryForges(sessions)))


@pytest.fixture
def caller(tenant_id):
    return caller_of(tenant_id)


@pytest.fixture
async def task(tasks, caller, repository):
    wanted = TaskRequest(instructions="Fix it.\nSoon.")
    return (await tasks.create(caller, repository.id, wanted)).row


async def test_create__stores_the_task_with_its_message_its_job_and_its_event(
    sessions, task, tenant_id
):
    assert (task.title, task.stage, task.max_runs) == ("Fix it.", Stage.QUEUED, 4)
    assert task.branch == f"task-{task.id}"
    async with sessions() as session:
        event = await session.scalar(select(Event).where(Event.tenant_id == tenant_id))
        job = await session.scalar(select(Job).where(Job.subject == task.id))
    assert (event.type, event.task_id, event.sandbox_id) == ("task.created", task.id, None)
    assert job.kind == "task"


async def test_create__a_repeated_request_creates_nothing(tasks, caller, repository):
    once = Idempotency(key="k", digest=b"d")
    wanted = TaskRequest(instructions="x")
    first = await tasks.create(caller, "acme/widgets", wanted, idempotency=once)
    again = await tasks.create(caller, "acme/widgets", wanted, idempotency=once)
    assert first.row.id == again.row.id


async def test_create__an_issue_has_one_open_task(tasks, caller, repository):
    first = await tasks.create(caller, repository.id, ISSUE)
    with pytest.raises(TaskExists, match=first.row.id):
        await tasks.create(caller, repository.id, ISSUE)
    assert await tasks.create_from_trigger(repository, ISSUE) is None


async def test_tasks__of_another_tenant_do_not_exist(tasks, task):
    stranger = caller_of(new_id())
    for use_case in (tasks.get, tasks.cancel, tasks.retry, tasks.archive):
        with pytest.raises(TaskNotFound):
            await use_case(stranger, task.id)
    with pytest.raises(TaskNotFound):
        await tasks.send_message(stranger, task.id, "x")
    assert list(await tasks.list_page(stranger, TaskQuery(), limit=10)) == []


async def test_add_message__a_delivery_that_comes_twice_is_one_message(tasks, task):
    message = {"origin": MessageOrigin.REVIEW, "origin_ref": "r1", "text": "No."}
    assert await tasks.add_message(task.id, **message)
    assert not await tasks.add_message(task.id, **message)


async def test_cancel__is_kept_whatever_the_worker_commits_meanwhile(tasks, caller, task, sessions):
    await tasks.cancel(caller, task.id)
    await TaskTransitions(sessions).commit(task, TaskMove(stage=Stage.PREPARING, reason="x"))
    assert (await tasks.get(caller, task.id)).row.target == TaskTarget.CANCELLED


async def test_transitions__a_worker_that_is_late_commits_nothing(task, sessions):
    transitions = TaskTransitions(sessions)
    await transitions.commit(task, TaskMove(stage=Stage.PREPARING, reason="first"))
    with pytest.raises(TaskChanged):
        await transitions.commit(task, TaskMove(stage=Stage.WORKING, reason="late"))


async def test_retry__of_an_ended_task_opens_it_again(tasks, caller, task, sessions):
    move = TaskMove(stage=Stage.FAILED, reason="No.", values={"outcome": Stage.FAILED})
    await TaskTransitions(sessions).commit(task, move)
    again = (await tasks.retry(caller, task.id)).row
    assert (again.stage, again.ended_at, again.outcome) == (Stage.QUEUED, None, None)


async def test_retry__grants_the_cost_limit_anew(tasks, caller, repository, sessions):
    wanted = TaskRequest(instructions="x", budget_usd=2)
    task = (await tasks.create(caller, repository.id, wanted)).row
    spent = TaskMove(stage=Stage.WAITING_FOR_USER, reason="Spent.", values={"spent_usd": 2.5})
    await TaskTransitions(sessions).commit(task, spent)
    again = (await tasks.retry(caller, task.id)).row
    assert (again.spent_usd, again.budget_usd) == (2.5, 4.5)


@pytest.mark.parametrize("stage", [Stage.MERGED, Stage.CLOSED, Stage.DONE])
async def test_retry__of_a_task_with_a_result_is_refused(stage, tasks, caller, task, sessions):
    await TaskTransitions(sessions).commit(task, TaskMove(stage=stage, reason="Done."))
    for use_case in (tasks.retry, tasks.approve):
        with pytest.raises(InvalidStage):
            await use_case(caller, task.id)
    await tasks.archive(caller, task.id)
    assert list(await tasks.list_page(caller, TaskQuery(), limit=10)) == []
    listed = await tasks.list_page(caller, TaskQuery(archived=True), limit=10)
    assert [entry.row.id for entry in listed] == [task.id]


async def test_archive__of_an_open_task_is_refused(tasks, caller, task):
    with pytest.raises(InvalidStage):
        await tasks.archive(caller, task.id)


async def test_list__selects_by_stage_and_repository(tasks, caller, task, repository):
    async def ids(**query):
        entries = await tasks.list_page(caller, TaskQuery(**query), limit=10)
        return [entry.row.id for entry in entries]

    assert await ids(stages=frozenset({"queued"})) == [task.id]
    assert await ids(stages=frozenset({"merged"})) == []
    assert await ids(repository="acme/widgets") == [task.id]
