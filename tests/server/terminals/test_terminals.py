"""Terminals over WebSockets, with several viewers on two servers."""

import hashlib
import json

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from sandbox_server.domain.ids import new_id
from tests.server.terminals.terminal_viewers import viewing

pytestmark = pytest.mark.needs_engine

NARROW = {"cols": 40, "rows": 10}


async def test_terminal__a_login_shell_accepts_input_and_shows_output(caller, new_terminal):
    made = await new_terminal(cols=100, rows=30)
    assert (made["state"], made["cols"], made["rows"], made["cmd"]) == ("running", 100, 30, None)
    async with viewing(caller, made["path"]) as viewer:
        attached = await viewer.until_told("attached")
        assert attached == {
            "type": "attached",
            "offset": 0,
            "cols": 100,
            "rows": 30,
            "state": "running",
        }
        await viewer.type(b'stty size; echo "$TERM $((40 + 2))"\r')
        await viewer.until_shown(b"30 100\r\nxterm-256color 42\r\n")
        await viewer.type(b"\x04")
        ended = await viewer.until_told("exit")
        assert (ended["state"], ended["exit_code"]) == ("exited", 0)
        assert await viewer.until_closed() == (1000, "The terminal has ended.")
    read = (await caller.get(made["path"])).json()
    assert (read["state"], read["exit_code"], read["size"]) == ("exited", 0, viewer.offset)


async def test_terminal__attached_is_the_first_message(caller, shell):
    async def find_first():
        async with viewing(caller, shell["path"]) as viewer:
            await viewer.say("ping")
            while {"pong", "sandbox", "attached"} - {told["type"] for told in viewer.told}:
                assert await viewer.read()
            return viewer.told[0]["type"]

    assert {await find_first() for _ in range(10)} == {"attached"}


async def test_terminal__viewers_on_two_servers_share_output_and_input(caller, other_caller, shell):
    async with (
        viewing(caller, shell["path"]) as here,
        viewing(other_caller, shell["path"]) as there,
    ):
        await here.type(b"echo from-$((1))\r")
        await there.until_shown(b"from-1\r\n> ")
        await there.type(b"echo from-$((2))\r")
        for viewer in (here, there):
            await viewer.until_shown(b"from-2\r\n> ")
        assert here.offset == there.offset


async def test_terminal__a_viewer_reconnects_where_it_was(caller, other_caller, shell):
    async with viewing(caller, shell["path"]) as viewer:
        await viewer.until_shown(b"> ")
        seen = viewer.offset
        await viewer.type(b"echo on\xffe; read x\r")
        await viewer.until_shown(b"on\xffe\r\n")
        viewer.leave()
    async with viewing(other_caller, f"{shell['path']}?after={seen}") as again:
        assert (await again.until_told("attached"))["offset"] == seen
        assert await again.until_shown(b"on\xffe\r\n") == b"echo on\xffe; read x\r\non\xffe\r\n"
        assert again.offset == viewer.offset
        async with viewing(caller, f"{shell['path']}?after={again.offset}") as later:
            await later.type(b"done\r")
            assert (await later.until_shown(b"> ")).endswith(b"done\r\n> ")


async def test_terminal__an_offset_beyond_the_end_is_the_end(caller, shell):
    async with viewing(caller, f"{shell['path']}?after={2**53}") as viewer:
        offset = (await viewer.until_told("attached"))["offset"]
        await viewer.type(b"echo $((6 * 7))\r")
        await viewer.until_shown(b"42\r\n")
    assert 0 <= offset < 100


async def test_resize_terminal__all_viewers_are_notified_and_the_last_size_wins(
    caller, other_caller, shell
):
    async with (
        viewing(caller, shell["path"]) as here,
        viewing(other_caller, shell["path"]) as there,
    ):
        await here.say("resize", cols=100, rows=30)
        await there.until_told("resized", cols=100, rows=30)
        await there.say("resize", cols=70, rows=20)
        await here.until_told("resized", cols=70, rows=20)
        resized = await caller.patch(shell["path"], json=NARROW)
        assert resized.json() | NARROW == resized.json()
        for viewer in (here, there):
            await viewer.until_told("resized", **NARROW)
        await here.type(b"stty size\r")
        await here.until_shown(b"10 40\r\n")
    async with viewing(other_caller, shell["path"]) as late:
        assert NARROW.items() <= (await late.until_told("attached")).items()


async def test_resize_terminal__a_full_screen_program_is_signalled(caller, new_terminal):
    watch = "trap 'echo [$(stty size)]' WINCH; tput smcup; echo ready; while :; do sleep 0.05; done"
    made = await new_terminal(cmd=watch)
    async with viewing(caller, made["path"]) as viewer:
        assert b"\x1b[?1049h" in await viewer.until_shown(b"ready")
        for cols in range(81, 100):
            await viewer.say("resize", cols=cols, rows=24)
        await viewer.until_shown(b"[24 99]")


async def test_terminal__every_byte_passes_in_order_in_both_directions(caller, new_terminal):
    made = await new_terminal(
        cmd="stty raw -echo; echo ready; head -c 262144 | sha256sum; sleep 60"
    )
    typed = bytes(range(256)) * 1024
    async with viewing(caller, made["path"]) as viewer:
        await viewer.until_shown(b"ready")
        for start in range(0, len(typed), 100_000):
            await viewer.type(typed[start : start + 100_000])
        await viewer.until_shown(hashlib.sha256(typed).hexdigest().encode())


async def test_terminal__an_invalid_message_is_reported_and_closes_nothing(caller, shell):
    async with viewing(caller, shell["path"]) as viewer:
        for text in (
            "no JSON",
            "{}",
            "[]",
            '{"type": "explode"}',
            '{"type": "resize", "cols": 0, "rows": 1}',
            '{"type": "resize", "cols": "80", "rows": 24}',
            '{"type": "resize", "cols": 80, "rows": 1001}',
            '{"type": "ping", "more": 1}',
        ):
            await viewer.say_text(text)
            problem = await viewer.until_told("problem")
            assert problem["code"] == "control-not-understood", text
        await viewer.say("ping")
        await viewer.until_told("pong")
        await viewer.type(b"echo $((6 * 7))\r")
        await viewer.until_shown(b"42\r\n")


async def test_terminal__an_oversized_message_closes_only_its_connection(caller, shell):
    async with viewing(caller, shell["path"]) as viewer:
        await viewer.type(b"x" * (2**20 + 1))
        assert (await viewer.until_closed())[0] == 1009
    assert (await caller.get(shell["path"])).json()["state"] == "running"


async def test_kill_terminal__kills_its_processes(caller, other_caller, shell):
    async with viewing(other_caller, shell["path"]) as viewer:
        await viewer.type(b"sleep 1000\r")
        await viewer.until_shown(b"sleep 1000\r\n")
        for _ in range(2):
            assert (await caller.delete(shell["path"])).status_code == httpx.codes.NO_CONTENT
        assert (await viewer.until_told("exit"))["state"] == "killed"
        assert (await viewer.until_closed())[0] == 1000
    async with viewing(caller, shell["path"]) as late:
        assert (await late.until_told("attached"))["state"] == "killed"
        await late.until_shown(b"sleep 1000\r\n")
        await late.until_told("exit")
        assert (await late.until_closed())[0] == 1000
    too_late = await caller.patch(shell["path"], json=NARROW)
    assert (too_late.status_code, too_late.json()["code"]) == (409, "command-not-running")


async def test_list_terminals__lists_running_ones_or_those_in_given_states(
    server_pair, caller, new_terminal
):
    running = await new_terminal(cmd="sleep 1000")
    ended = await new_terminal(cmd="exit 3")
    async with viewing(caller, ended["path"]) as viewer:
        assert (await viewer.until_told("exit"))["exit_code"] == 3
    listed = (await caller.get(server_pair.path)).json()["items"]
    assert running["id"] in {one["id"] for one in listed}
    assert {one["state"] for one in listed} == {"running"}
    exited = (await caller.get(server_pair.path, params={"state": "exited"})).json()["items"]
    assert ended["id"] in {one["id"] for one in exited}


async def test_create_terminal__a_failed_start_states_the_reason(server_pair, caller):
    for body in ({"cwd": "/nowhere"}, {"user": "nobody-there"}):
        refused = await caller.post(server_pair.path, json=body)
        assert (refused.status_code, refused.json()["code"]) == (422, "command-not-started")


async def test_idempotency_key__a_repeated_request_creates_no_second_terminal(server_pair, caller):
    headers = {"Idempotency-Key": new_id()}
    made = [await caller.post(server_pair.path, json={}, headers=headers) for _ in range(2)]
    assert made[0].json()["id"] == made[1].json()["id"]
    await caller.delete(made[0].json()["path"])


async def test_terminal__a_read_only_key_may_watch_but_not_type(caller, shell):
    key = (await caller.post("/v1/keys", json={"scopes": ["read"]})).json()["secret"]
    reader = httpx.AsyncClient(base_url=caller.base_url, headers={"X-API-Key": key}, timeout=60)
    async with reader, viewing(reader, shell["path"]) as watcher:
        await watcher.type(b"echo no\r")
        assert (await watcher.until_told("problem"))["code"] == "scope-missing"
        await watcher.say("resize", **NARROW)
        assert (await watcher.until_told("problem"))["code"] == "scope-missing"
        async with viewing(caller, shell["path"]) as viewer:
            await viewer.type(b"echo $((6 * 7))\r")
            await watcher.until_shown(b"42\r\n")
        assert b"no" not in watcher.shown


async def test_ticket__a_page_attaches_with_a_ticket_for_the_sandbox(server_pair, caller, shell):
    async def ticket(**body):
        made = await caller.post("/v1/tickets", json={"ttl_s": 60, **body})
        return made.json()["ticket"]

    async with httpx.AsyncClient(base_url=caller.base_url, timeout=60) as page:
        typing = await ticket(scope="sandboxes", sandbox_id=server_pair.sandbox_id)
        async with viewing(page, f"{shell['path']}?ticket={typing}&after=0") as viewer:
            await viewer.type(b"echo $((6 * 7))\r")
            await viewer.until_shown(b"42\r\n")
        reading = await ticket(scope="read", sandbox_id=server_pair.sandbox_id)
        async with viewing(page, f"{shell['path']}?ticket={reading}") as viewer:
            await viewer.until_shown(b"42\r\n")
            await viewer.type(b"x")
            assert (await viewer.until_told("problem"))["code"] == "scope-missing"


@pytest.fixture
async def refusal(caller):
    async def refuse(path, client=caller, **headers):
        if headers:
            client = httpx.AsyncClient(base_url=caller.base_url, headers=headers, timeout=60)
        with pytest.raises(InvalidStatus) as refusal:
            async with viewing(client, path):
                pass
        answer = refusal.value.response
        assert answer.headers["Content-Type"] == "application/problem+json"
        assert answer.headers["X-Request-Id"]
        return answer.status_code, json.loads(answer.body)["code"]

    return refuse


async def test_terminal__refused_viewers_get_an_error_response_before_the_handshake(
    server_pair, caller, shell, refusal
):
    await caller.put("/v1/tenants/stranger", json={})
    key = (await caller.post("/v1/keys", json={"tenant": "stranger"})).json()["secret"]
    path = shell["path"]
    elsewhere = path.replace(server_pair.sandbox_id, new_id())
    assert await refusal(path, **{"X-API-Key": key}) == (404, "sandbox-not-found")
    assert await refusal(path, **{"X-API-Key": "none"}) == (401, "unauthenticated")
    assert await refusal(elsewhere) == (404, "sandbox-not-found")
    assert await refusal(f"{server_pair.path}/{new_id()}") == (404, "terminal-not-found")
    assert await refusal(f"{server_pair.path}/no-id") == (404, "terminal-not-found")
    assert await refusal(f"{path}?after=-1") == (422, "validation-failed")
    assert await refusal(f"{path}?after=x") == (422, "validation-failed")


async def test_revoke_key__closes_its_terminal_connections(caller, shell):
    made = (await caller.post("/v1/keys", json={})).json()
    other = httpx.AsyncClient(
        base_url=caller.base_url, headers={"X-API-Key": made["secret"]}, timeout=60
    )
    async with other, viewing(other, shell["path"]) as viewer:
        await viewer.until_told("attached")
        await caller.delete(f"/v1/keys/{made['id']}")
        assert (await viewer.until_closed())[0] == 4401


async def test_terminal__reports_a_paused_sandbox_and_resumes_it_on_input(
    server_pair, caller, shell
):
    sandbox = f"/v1/sandboxes/{server_pair.sandbox_id}"
    async with viewing(caller, shell["path"]) as viewer:
        await viewer.until_told("sandbox", state="running")
        await caller.post(f"{sandbox}/pause")
        await viewer.until_told("sandbox", state="paused")
        await viewer.say("resize", **NARROW)
        await viewer.say("ping")
        await viewer.until_told("pong")
        refused = await caller.patch(shell["path"], json=NARROW)
        assert (refused.status_code, refused.json()["code"]) == (409, "sandbox-paused")
        assert (await caller.get(sandbox)).json()["state"] == "paused"
        await viewer.type(b"echo $((6 * 7))\r")
        await viewer.until_told("sandbox", state="running")
        await viewer.until_told("resized", **NARROW)
        await viewer.until_shown(b"42\r\n")
