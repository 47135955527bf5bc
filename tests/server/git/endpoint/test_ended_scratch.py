import asyncio
import os
import time

import pytest
from sqlalchemy import text

from sandbox_server.db.models import Sandbox

HOUR = 3600


@pytest.fixture
async def push_as(place, git_in):
    """Push as a new sandbox without a task; gives its id."""

    async def push(name):
        sandbox = await place.plain_sandbox(branch=name, push=True)
        client = git_in(name)
        await asyncio.to_thread(client.git, "clone", "-q", place.remote(sandbox), ".")
        client.commit(f"feat: {name}")
        await asyncio.to_thread(client.git, "push", "-q", "origin", f"HEAD:{name}")
        return sandbox.id

    return push


def scratch(place):
    return {path.name.removesuffix(".git") for path in (place.mirrors / "tasks").glob("*.git")}


def age(place, hours):
    """Have all scratch repositories been made so long ago."""
    made = time.time() - hours * HOUR
    for path in (place.mirrors / "tasks").glob("*.git"):
        os.utime(path, (made, made))


async def end(place, *, hours):
    ended_at = text(f"clock_timestamp() - interval '{hours} hours'")
    await place.set(Sandbox, state="stopped", target="gone", ended_at=ended_at)


async def test_scratch__of_an_ended_sandbox_is_removed_when_another_one_is_made(place, push_as):
    await push_as("one")
    await end(place, hours=2)
    age(place, 3)
    second = await push_as("two")
    assert scratch(place) == {second}


async def test_scratch__of_a_living_sandbox_stays(place, push_as):
    first = await push_as("one")
    age(place, 3)
    second = await push_as("two")
    assert scratch(place) == {first, second}


async def test_scratch__of_a_sandbox_that_has_just_ended_stays_for_a_push_in_progress(
    place, push_as
):
    first = await push_as("one")
    await end(place, hours=0)
    age(place, 3)
    second = await push_as("two")
    assert scratch(place) == {first, second}


async def test_scratch__of_a_task_that_is_open_stays(place, push_as, task_repositories, repository):
    await place.task_sandbox()
    async with place.sessions() as session:
        [task_id] = await session.scalars(text("SELECT id FROM tasks"))
    async with task_repositories.open(repository, task_id):
        pass
    age(place, 3)
    second = await push_as("two")
    assert scratch(place) == {task_id, second}


async def test_scratch__of_what_is_not_known_any_more_is_removed(
    place, push_as, task_repositories, repository
):
    async with task_repositories.open(repository, "removed-long-ago"):
        pass
    age(place, 3)
    second = await push_as("two")
    assert scratch(place) == {second}
