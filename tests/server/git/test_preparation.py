"""Prepared snapshots, of a real engine, for a whole server with a git server as the forge."""

import asyncio
from contextvars import ContextVar
from datetime import timedelta

import pytest
from sqlalchemy import event, select, update
from sqlalchemy.orm import Session

from sandbox_server.db.models import Job, Repository, Sandbox, Snapshot
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.git.checkouts import Checkouts
from sandbox_server.git.preparation import PreparationJob
from sandbox_server.jobs.kinds import PREPARATION
from sandbox_server.repositories.prepared import refresh
from tests.engine.polling import until
from tests.server.git.git_server import PASSWORD, USER
from tests.server.support.full_server import inside, serving_outside

pytestmark = pytest.mark.needs_engine

NAME = "acme/widgets"
HOME = "/home/user"
SETUP = (
    f'echo built >built.txt; echo dirty >>README.md; test -n "$WHO"; echo ran >>{HOME}/setup-log'
)


_in_step = ContextVar("_in_step", default=False)


class Prepared:
    """A server with one repository, whose sandboxes are of the template `base`."""

    def __init__(self, outside, api):
        self.outside, self.api, self.made = outside, api, []
        self.repository_id = ""

    @property
    def sessions(self):
        return self.outside.components.sessions

    async def add(self, **settings):
        settings = {"template": "base", **settings}
        body = {
            "forge": "git",
            "full_name": NAME,
            "settings": settings,
            "envs": {"WHO": "variable-of-setup"},
        }
        added = await self.api.post("/v1/repositories", json=body)
        assert added.status_code == 201, added.text
        self.repository_id = added.json()["id"]

    async def read(self):
        return (await self.api.get(f"/v1/repositories/{self.repository_id}")).json()

    async def prepare(self):
        answer = await self.api.post(f"/v1/repositories/{self.repository_id}/prepare")
        assert answer.status_code == 202, answer.text
        assert answer.json()["preparing"]

        async def is_done():
            return not (await self.read())["preparing"]

        await until(is_done, timeout=90)
        return await self.read()

    async def sandbox(self, branch="agent-1", **fields):
        wanted = {"template": "base", "repository": {"name": NAME, "branch": branch}, **fields}
        answer = await self.api.post("/v1/sandboxes", json=wanted)
        assert answer.status_code == 201, answer.text
        sandbox_id = answer.json()["id"]
        self.made.append(sandbox_id)

        async def is_checked_out():
            record = (await self.api.get(f"/v1/sandboxes/{sandbox_id}")).json()
            return record["repository"]["state"] != "pending"

        await until(is_checked_out, timeout=60)
        record = (await self.api.get(f"/v1/sandboxes/{sandbox_id}")).json()
        assert record["repository"]["state"] == "ready", record["repository"]
        return record

    async def shell(self, record, command):
        handle = await inside(self.outside, record["id"])
        done = await handle.commands.run(command, cwd=f"{HOME}/widgets", timeout=60)
        return done.stdout.strip()

    async def rows(self, kind):
        async with self.sessions() as session:
            return list(await session.scalars(select(kind).order_by(kind.id)))


@pytest.fixture
async def prepared(database_url, engine, forge, seeded, tmp_path):
    origin = f"http://127.0.0.1:{forge.port}"
    (tmp_path / "state").mkdir()
    async with (
        serving_outside(
            database_url,
            engine,
            state_dir=tmp_path / "state",
            forge_hosts=(origin,),
            agent_template=False,
        ) as outside,
        outside.api() as api,
    ):
        definition = {
            "kind": "git",
            "git_url": origin,
            "git_username": USER,
            "token": PASSWORD,
        }
        put = await api.put("/v1/forges/git", json=definition)
        assert put.status_code in (200, 201), put.text
        server = Prepared(outside, api)
        yield server
        for sandbox_id in server.made:
            await api.delete(f"/v1/sandboxes/{sandbox_id}")
        if server.repository_id:
            await api.delete(f"/v1/repositories/{server.repository_id}")

        async def nothing_is_left():
            sandboxes = await server.rows(Sandbox)
            return all(row.ended_at for row in sandboxes) and not await server.rows(Snapshot)

        await until(nothing_is_left, timeout=60)


async def test_prepare__sandboxes_start_from_the_checkout_with_its_setup(prepared, seeded):
    await prepared.add(setup=SETUP)
    read = await prepared.prepare()
    assert read["prepare_error"] is None
    assert read["prepared_sha"] == seeded.git("rev-parse", "main")
    [snapshot] = await prepared.rows(Snapshot)
    record = await prepared.sandbox()
    assert record["template"] == snapshot.id
    assert record["repository"]["commit"] == read["prepared_sha"]
    assert await prepared.shell(record, "git status --porcelain --branch") == "## agent-1"
    assert await prepared.shell(record, "git branch --format='%(refname:short)'") == "agent-1"
    assert await prepared.shell(record, "cat built.txt; grep -c dirty README.md || :") == "built\n0"
    for secret in ("variable-of-setup", PASSWORD):
        search = f"env | grep {secret}; grep -rs {secret} /etc /home /root /tmp /var || :"
        assert await prepared.shell(record, search) == ""


async def test_prepare__a_new_snapshot_replaces_the_old_one_which_lives_while_it_is_needed(
    prepared,
):
    await prepared.add(setup=SETUP)
    await prepared.prepare()
    [first] = await prepared.rows(Snapshot)
    record = await prepared.sandbox()
    await prepared.prepare()
    listed = (await prepared.api.get("/v1/snapshots")).json()["items"]
    assert len(listed) == 1
    assert listed[0]["id"] != first.id
    assert await prepared.shell(record, "cat built.txt") == "built"
    assert (await prepared.sandbox())["template"] == listed[0]["id"]


async def test_prepare__a_failed_setup_is_told_and_sandboxes_start_without_it(prepared):
    await prepared.add(setup="echo no such compiler >&2; exit 3")
    read = await prepared.prepare()
    assert read["prepared_sha"] is None
    assert "exit code 3" in read["prepare_error"]
    assert "no such compiler" in read["prepare_error"]
    record = await prepared.sandbox()
    assert record["template"] == "base"
    ended = [row for row in await prepared.rows(Sandbox) if row.labels.get("prepares")]
    await until(lambda: _have_ended(prepared, ended), timeout=30)


async def _have_ended(prepared, sandboxes):
    known = {row.id: row for row in await prepared.rows(Sandbox)}
    return all(known[row.id].ended_at for row in sandboxes)


async def test_prepare__another_setup_template_or_a_deleted_snapshot_is_the_ordinary_path(
    prepared,
):
    await prepared.add()
    await prepared.prepare()
    [snapshot] = await prepared.rows(Snapshot)
    path = f"/v1/repositories/{prepared.repository_id}"
    await prepared.api.patch(path, json={"settings": {"setup": "true"}})
    assert (await prepared.sandbox())["template"] == "base"
    await prepared.api.patch(path, json={"settings": {"setup": None}})
    assert (await prepared.sandbox())["template"] == snapshot.id
    await prepared.api.delete(f"/v1/snapshots/{snapshot.id}")
    assert (await prepared.sandbox())["template"] == "base"


async def test_prepare__after_a_crash_at_any_commit_one_snapshot_is_left_and_its_setup_ran_once(
    prepared, mirrors, seeded
):
    await prepared.add(setup=SETUP)
    components = prepared.outside.components
    async with prepared.sessions.begin() as session:
        await session.execute(update(Repository).values(preparation={}))
    job = PreparationJob(
        prepared.sessions,
        controller=components.controller,
        commands=components.commands,
        snapshots=components.snapshots,
        repositories=components.repositories,
        checkouts=Checkouts(mirrors),
    )
    crashes: set[tuple[object, ...]] = set()
    is_over = False
    while not is_over:
        [row] = await prepared.rows(Repository)
        known = row.preparation or {}
        step = (bool(known), known.get("sha") is None, known.get("ended"))
        after = sum(each[:3] == step for each in crashes) + 1
        crashed, due = await _pass(job, row.id, crash_after=after)
        if crashed:
            crashes.add((*step, after))
        is_over = not crashed and due is None
        await asyncio.sleep(0.1)
    assert len(crashes) >= 6
    read = await prepared.read()
    assert (read["prepare_error"], read["preparing"]) == (None, False)
    assert read["prepared_sha"] == seeded.git("rev-parse", "main")
    [snapshot] = await prepared.rows(Snapshot)
    made = await prepared.rows(Sandbox)
    assert snapshot.sandbox_id in [row.id for row in made]
    await until(lambda: _have_ended(prepared, made), timeout=30)
    record = await prepared.sandbox()
    assert record["template"] == snapshot.id
    assert await prepared.shell(record, f"cat {HOME}/setup-log") == "ran"


async def _pass(job, repository_id, *, crash_after):
    """Run one step that is cancelled after that many of its own commits."""
    commits = 0
    leased = LeasedJob(id=1, kind=PREPARATION, subject=repository_id, attempts=1, leased_by="test")
    _in_step.set(True)  # the tasks below inherit it
    task = asyncio.create_task(job.work(leased))
    _in_step.set(False)

    def crash(_session):
        nonlocal commits
        if _in_step.get() and not task.done():
            commits += 1
            if commits == crash_after:
                task.cancel()

    event.listen(Session, "after_commit", crash)
    try:
        return False, await task
    except asyncio.CancelledError:
        return True, None
    finally:
        event.remove(Session, "after_commit", crash)


async def test_prepare__a_push_prepares_anew_an_hour_after_the_last_time(prepared):
    await prepared.add()
    async with prepared.sessions.begin() as session:
        await refresh(session, prepared.repository_id)
    assert not (await prepared.read())["preparing"]
    await prepared.prepare()
    async with prepared.sessions.begin() as session:
        await refresh(session, prepared.repository_id)
    async with prepared.sessions() as session:
        due = await session.scalar(select(Job.run_at).where(Job.kind == PREPARATION))
        row = await session.get_one(Repository, prepared.repository_id)
    assert due - row.prepared_at == timedelta(hours=1)
    assert (await prepared.read())["preparing"]
