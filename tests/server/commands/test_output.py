"""Output in responses, from rows that exist already."""

import pytest

from sandbox_client.models import CommandSignal
from sandbox_server.commands.api import SIGNALS
from sandbox_server.commands.service import MAX_READ
from sandbox_server.commands.views import LONGEST_LISTED
from sandbox_server.domain.commands import CommandKind
from sandbox_server.domain.state import State
from tests.server.commands.command_rows import record_command
from tests.server.support.api_fixtures import caller_of
from tests.server.support.rows import add_sandbox, find_tenant

ABSENT = "0" * 20


@pytest.fixture
async def tenant_id(admin, sessions):
    return await find_tenant(sessions)


@pytest.fixture
async def sandbox(sessions, tenant_id):
    return await add_sandbox(sessions, tenant_id)


@pytest.fixture
def record(sessions, tenant_id, sandbox):
    async def record(**columns):
        return await record_command(sessions, tenant_id, sandbox.id, **columns)

    return record


def path_of(recorded, rest=""):
    return f"/v1/sandboxes/{recorded.sandbox_id}/commands/{recorded.command_id}{rest}"


async def test_get_command__the_outcome_states_where_output_is_missing_and_how_much(admin, record):
    log = await record()
    pieces = [await log.write("stdout", text) for text in (b"head\n", b"x" * 100, b"tail\n")]
    await log.drop("stdout", pieces[1:2])
    await log.write("stderr", b"oh")
    await log.end(exit_code=1)
    told = (await admin.get(path_of(log))).json()
    assert told["stdout"] == "head\n\n[100 bytes are missing here]\ntail\n"
    assert told["stdout_cut"] == {"offset": 5, "size": 100}
    assert (told["stdout_size"], told["stderr"], told["stderr_cut"]) == (110, "oh", None)


async def test_get_command__returns_the_head_and_tail_of_very_long_output(admin, record):
    log = await record()
    piece = MAX_READ // 4
    for letter in b"abcdefgh":
        await log.write("stdout", bytes([letter]) * piece)
    await log.end()
    told = (await admin.get(path_of(log))).json()
    assert told["stdout"].startswith("a" * piece + "b" * piece + "\n[")
    assert told["stdout"].endswith("]\n" + "g" * piece + "h" * piece)
    assert told["stdout_cut"] == {"offset": 2 * piece, "size": 4 * piece}


async def test_read_output__a_part_contains_gaps_and_the_next_offset(admin, record):
    log = await record()
    pieces = [await log.write("stdout", text) for text in (b"one", b"two", b"three")]
    await log.drop("stdout", pieces[1:2])
    await log.add("gap", stream=None, size=None, reason="The server was away.")
    await log.write("stderr", b"else")
    part = (await admin.get(path_of(log, "/output"))).json()
    told = [{name: one[name] for name in one if name != "at"} for one in part["items"]]
    assert told == [
        {"type": "stdout", "offset": 0, "text": "one"},
        {
            "type": "gap",
            "stream": "stdout",
            "offset": 3,
            "size": 3,
            "reason": "It was too much.",
        },
        {"type": "stdout", "offset": 6, "text": "three"},
        {
            "type": "gap",
            "stream": None,
            "offset": 0,
            "size": None,
            "reason": "The server was away.",
        },
    ]
    assert (part["next_offset"], part["state"]) == (11, "running")
    rest = (await admin.get(path_of(log, "/output"), params={"offset": 4, "limit": 2})).json()
    assert [(one["type"], one["offset"]) for one in rest["items"]] == [("gap", 4), ("stdout", 6)]
    assert rest["next_offset"] == 8


async def test_list_commands__long_commands_are_truncated(admin, record, sandbox):
    await record(cmd="x" * (LONGEST_LISTED + 1))
    [listed] = (await admin.get(f"/v1/sandboxes/{sandbox.id}/commands")).json()["items"]
    assert listed["cmd"] == "x" * LONGEST_LISTED + "…"
    one = (await admin.get(f"/v1/sandboxes/{sandbox.id}/commands/{listed['id']}")).json()
    assert len(one["cmd"]) == LONGEST_LISTED + 1


async def test_get_command__commands_of_other_sandboxes_are_neither_found_nor_listed(
    admin, sessions, tenant_id, sandbox, record
):
    other = await add_sandbox(sessions, tenant_id)
    elsewhere = await record_command(sessions, tenant_id, other.id)
    terminal = await record(kind=CommandKind.TERMINAL)
    service = await record(kind=CommandKind.SERVICE)
    for command_id in (elsewhere.command_id, terminal.command_id, service.command_id, ABSENT):
        for rest in ("", "/output"):
            answer = await admin.get(f"/v1/sandboxes/{sandbox.id}/commands/{command_id}{rest}")
            assert (answer.status_code, answer.json()["code"]) == (404, "command-not-found")
    assert (await admin.get(f"/v1/sandboxes/{sandbox.id}/commands")).json()["items"] == []


async def test_tenancy__another_tenants_command_is_not_found(app, make_key, record):
    log = await record()
    await log.write("stdout", b"secret")
    async with caller_of(app, await make_key(tenant="other")) as other:
        for accept in ("application/json", "text/event-stream"):
            for rest in ("", "/output"):
                answer = await other.get(path_of(log, rest), headers={"Accept": accept})
                assert (answer.status_code, answer.json()["code"]) == (404, "sandbox-not-found")


async def test_run_command__for_a_queued_sandbox_is_refused_when_the_wait_is_over(
    admin, sessions, tenant_id
):
    queued = await add_sandbox(sessions, tenant_id, state=State.QUEUED, expires_at=None)
    answer = await admin.post(
        f"/v1/sandboxes/{queued.id}/commands", params={"wait": 0}, json={"cmd": "true"}
    )
    assert (answer.status_code, answer.json()["code"]) == (503, "not-ready")
    assert answer.headers["Retry-After"]


@pytest.mark.parametrize(
    "asked",
    [{"offset": -1}, {"limit": 0}, {"limit": 2**20 + 1}, {"stream": "both"}, {"offset": 10**30}],
    ids=["before", "nothing", "too-much", "unknown", "huge"],
)
async def test_read_output__invalid_parameters_are_refused_by_name(admin, record, asked):
    answer = await admin.get(path_of(await record(), "/output"), params=asked)
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["parameter"] in asked


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"cmd": ""},
        {"cmd": "a\0b"},
        {"cmd": "true", "user": "a:b"},
        {"cmd": "true", "envs": {"1": "x"}},
        {"cmd": "true", "timeout_s": 0},
        {"cmd": "true", "shell": "zsh"},
    ],
    ids=["none", "empty", "nul", "user", "name", "time", "field"],
)
async def test_run_command__invalid_requests_are_refused(admin, sandbox, body):
    answer = await admin.post(f"/v1/sandboxes/{sandbox.id}/commands", json=body)
    assert (answer.status_code, answer.json()["code"]) == (422, "validation-failed")


def test_command_signal__every_documented_signal_can_be_sent():
    assert set(SIGNALS) == set(CommandSignal)
