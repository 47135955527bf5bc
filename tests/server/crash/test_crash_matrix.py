"""One of two servers is killed at each step of each transition, and the other one finishes."""

import asyncio
from contextlib import suppress
from datetime import timedelta
from itertools import count

import httpx
import pytest

from tests.engine.polling import until
from tests.server.crash.replicas import LEASE
from tests.server.crash.transitions import TRANSITIONS, Scene
from tests.server.crash.walk import Moment, Walk

pytestmark = pytest.mark.needs_engine

WITHIN = LEASE + timedelta(seconds=20)
PATIENCE = timedelta(minutes=1)


async def _walk_through(replicas, transition, moment):
    """Do it again and again, each time with the server killed one step further, until it gets to the end."""
    for nth in count(1):
        walk = Walk(nth, moment)
        if not await _die_at_step(replicas, transition, walk, within=WITHIN):
            return walk.steps
        await replicas.restart()
    raise AssertionError


async def _die_at_step(replicas, transition, walk, *, within=PATIENCE):
    """Have it done by a server that is killed on the way; tells whether that came so far."""
    scene = Scene(replicas, transition)
    await scene.prepare()
    try:
        killed = await _die(replicas, scene, walk, within=within)
    except BaseException as error:
        error.add_note(f"killed {walk.moment} the last of {walk.steps}")
        error.add_note(replicas.survivor.log)
        raise
    await replicas.delete_all()
    return killed


async def _die(replicas, scene, walk, *, within):
    replicas.freeze()
    replicas.walk(walk, first_create=scene.first_create)
    asking = asyncio.create_task(scene.begin(replicas.victim))
    try:
        await until(lambda: _is_held_or_over(replicas, walk, asking), timeout=60)
        is_killed = walk.is_reached
        if is_killed:
            replicas.kill()
        else:  # what comes next is no part of it, and a step of that would be held for good
            replicas.walk(Walk())
    finally:
        replicas.thaw()
    with suppress(httpx.TransportError):
        await asking
    if not is_killed:
        await scene.require_outcome()
        return False
    if walk.moment is not Moment.LATE:
        walk.let_go()

    if scene.is_asked_for and walk.nobody_knows:
        await until(replicas.are_idle, timeout=within.total_seconds())
        await scene.require_nothing_happened()
    else:
        await until(replicas.are_settled, timeout=within.total_seconds())
        await scene.require_outcome()
    if scene.is_asked_for:
        await scene.begin(replicas.survivor)
    await until(replicas.are_settled, timeout=PATIENCE.total_seconds())
    await scene.require_outcome()
    await replicas.require_whole()
    if walk.moment is Moment.LATE:
        await _let_the_call_arrive(replicas, walk)
    return True


async def _let_the_call_arrive(replicas, walk):
    """Let what the dead server sent be carried out at last, and compare then."""
    walk.let_go()
    async with asyncio.timeout(PATIENCE.total_seconds()):
        await walk.passed_on.wait()
    await replicas.patrol()
    await until(replicas.are_settled, timeout=PATIENCE.total_seconds())
    await replicas.require_whole()


async def _is_held_or_over(replicas, walk, asking):
    return walk.is_reached or (asking.done() and await replicas.are_settled())


@pytest.mark.parametrize(
    ("name", "nth"),
    [
        ("start", 2),
        pytest.param("kill-that-frees-a-place", 4, marks=pytest.mark.slow),
        pytest.param("fork", 2, marks=pytest.mark.slow),
        ("pause-for-the-providers-maximum", 5),
    ],
)
async def test_crash__another_server_finishes_the_step_of_a_killed_one(replicas, name, nth):
    assert await _die_at_step(replicas, TRANSITIONS[name], Walk(nth))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", TRANSITIONS)
async def test_crash__another_server_finishes_in_time_at_every_step(replicas, name):
    for moment in Moment:
        steps = await _walk_through(replicas, TRANSITIONS[name], moment)
        assert steps or (moment is Moment.LATE and not TRANSITIONS[name].asks_provider)
