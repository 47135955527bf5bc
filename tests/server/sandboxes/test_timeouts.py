"""What callers do to a sandbox's time."""

from datetime import timedelta

import pytest

from sandbox_server.domain.errors import SandboxPaused
from sandbox_server.domain.state import OnTimeout, State, Target
from tests.server.support.managed_sandboxes import DAY, HOUR, MINUTE

pytestmark = pytest.mark.needs_engine

SECOND = timedelta(seconds=1)


async def changes(server, sandbox_id):
    events = await server.living.events(sandbox_id)
    return [one.data["reason"] for one in events if one.type == "sandbox.deadline_changed"]


async def test_connect__extends_the_timeout_and_never_shortens_it(server):
    row = await server.running(timeout=HOUR)
    more = await server.controller.connect(server.caller, row.id, timeout=2 * HOUR)
    assert more.expires_at > row.expires_at + 50 * MINUTE
    less = await server.controller.connect(server.caller, row.id, timeout=MINUTE)
    assert less.expires_at == more.expires_at
    [told] = await changes(server, row.id)
    assert "more" in told


async def test_connect__resumes_a_paused_sandbox_with_the_timeout(server):
    row = await server.paused(timeout=MINUTE)
    resumed = await server.controller.connect(server.caller, row.id, timeout=HOUR)
    assert resumed.state is State.RUNNING
    assert resumed.expires_at - resumed.started_at > HOUR - MINUTE


async def test_timeout__is_exact_and_applied_at_once(server):
    row = await server.running(timeout=DAY, on_timeout=OnTimeout.DELETE)
    await server.controller.set_timeout(server.caller, row.id, SECOND / 10)
    gone = await server.settled(row.id, State.STOPPED)
    assert "timeout" in gone.state_reason
    [told] = await changes(server, row.id)
    assert "less" in told


async def test_resume__restores_an_expired_timeout(server):
    row = await server.running(timeout=HOUR)
    await server.controller.set_timeout(server.caller, row.id, SECOND / 10)
    paused = await server.settled(row.id, State.PAUSED)
    assert paused.remaining == timedelta()
    await server.controller.update(server.caller, row.id, {"timeout": HOUR})
    resumed = await server.controller.resume(server.caller, row.id)
    assert resumed.expires_at - resumed.started_at > HOUR - MINUTE


async def test_patch__changes_only_the_named_fields(server):
    row = await server.running(timeout=HOUR, idle_timeout=MINUTE, metadata={"a": "b"})
    patched = await server.controller.update(
        server.caller,
        row.id,
        {
            "metadata": {"c": "d"},
            "idle_timeout": None,
            "on_timeout": OnTimeout.DELETE,
            "auto_resume": False,
        },
    )
    assert (patched.labels, patched.idle_timeout) == ({"c": "d"}, None)
    assert (patched.on_timeout, patched.auto_resume) == (OnTimeout.DELETE, False)
    assert (patched.timeout, patched.expires_at) == (row.timeout, row.expires_at)
    assert await changes(server, row.id) == []


async def test_patch__a_shorter_idle_timeout_applies_at_once(server):
    row = await server.running(timeout=HOUR)
    await server.controller.update(server.caller, row.id, {"idle_timeout": SECOND / 10})
    paused = await server.settled(row.id, State.PAUSED)
    assert "idle" in paused.state_reason


async def test_keepalive__postpones_the_idle_pause(server):
    row = await server.running(timeout=HOUR, idle_timeout=MINUTE)
    awake = await server.controller.keep_awake(server.caller, row.id, awake_for=30 * MINUTE)
    assert awake.awake_until > row.last_activity_at + 29 * MINUTE
    again = await server.controller.keep_awake(
        server.caller, row.id, awake_for=SECOND, timeout=2 * HOUR
    )
    assert again.awake_until == awake.awake_until
    assert again.expires_at > row.expires_at


async def test_use__of_a_running_sandbox_is_activity_without_a_provider_call(server):
    row = await server.running(timeout=HOUR)
    await server.living.pass_time(row.id, 10 * MINUTE)
    before = await server.living.row(row.id)
    used = await server.controller.use(server.caller, row.id)
    assert (await used.backend.handle(used.access).commands.run("echo hi")).stdout == "hi\n"
    assert (await server.living.row(row.id)).last_activity_at > before.last_activity_at
    assert (await server.controller.use(server.caller, row.id)).access is used.access


async def test_use__resumes_a_paused_sandbox_with_its_files(server):
    row = await server.running()
    used = await server.controller.use(server.caller, row.id)
    await used.backend.handle(used.access).files.write("kept", "as it was")
    await server.controller.pause(server.caller, row.id)

    used = await server.controller.use(server.caller, row.id)

    assert await used.backend.handle(used.access).files.read("kept") == "as it was"
    [resuming] = [
        one for one in await server.living.events(row.id) if one.type == "sandbox.resuming"
    ]
    assert resuming.data["cause"] == "traffic"


async def test_use__does_not_resume_a_sandbox_to_be_paused(server):
    row = await server.paused(auto_resume=False)
    with pytest.raises(SandboxPaused):
        await server.controller.use(server.caller, row.id)
    still = await server.living.row(row.id)
    assert (still.state, still.target) == (State.PAUSED, Target.PAUSED)


async def test_metrics__are_read_from_the_provider(server):
    row = await server.running()
    used = (await server.controller.metrics(server.caller, row.id))[-1]
    assert 0 < used.memory_used <= used.memory_total
    await server.controller.delete(server.caller, row.id)
    assert await server.controller.metrics(server.caller, row.id) == []
