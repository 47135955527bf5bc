"""Code that misbehaves, and executions that are cut off."""

import asyncio

import pytest

from tests.engine.polling import until
from tests.server.interpreters.interpreter_sandbox import sandbox_with_interpreter
from tests.server.support.event_reader import following

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.needs_engine]

ENDLESS = "print('on')\nwhile True: pass"


async def test_timeout__interrupts_the_code_and_leaves_the_context_usable(run):
    done = await run(f"kept = 1\n{ENDLESS}", timeout_s=1)
    assert (done["state"], done["stdout"]) == ("timed_out", "on\n")
    assert done["state_reason"] == "Timed out after 1 s and interrupted."
    assert (await run("kept"))["results"][0]["data"]["text"] == "1"


async def test_flood__a_long_stream_is_kept_at_both_ends(run):
    done = await run(
        "import sys\nfor n in range(1600): sys.stdout.write('x' * 65536)\nprint('end')"
    )
    assert done["state"] == "succeeded"
    assert done["stdout_size"] == 1600 * 65536 + 4
    assert done["stdout"].endswith("xend\n")
    assert done["stdout_cut"]["size"] > 90 * 2**20
    assert len(done["stdout"]) < 2**21


async def test_flood__one_message_of_100_mb_is_skipped_with_a_gap(api, path):
    body = {"code": "print('x' * 10**8)\nprint('after')"}
    async with following(api, f"{path}/code", method="POST", json=body) as stream:
        told = await stream.rest()
    [gap] = [one.data for one in told if one.data["type"] == "gap"]
    assert gap["size"] > 10**8
    assert "".join(one.data["text"] for one in told if one.data["type"] == "stdout").endswith(
        "after\n"
    )
    assert told[-1].data["state"] == "succeeded"


async def test_results__what_is_too_large_is_named_but_not_kept(run):
    done = await run("display(html='x' * (9 * 2**20), text='small')")
    [result] = done["results"]
    assert (result["data"], result["dropped"]) == ({"text": "small"}, {"html": 9 * 2**20})


async def test_results__a_large_format_is_read_as_a_file_only(api, path, run):
    done = await run("display(html='x' * (2 * 2**20), text='small')")
    [result] = done["results"]
    assert (result["data"], result["sizes"]["html"]) == ({"text": "small"}, 2 * 2**20)
    whole = await api.get(f"{path}/code/{done['id']}/results/0/html")
    assert whole.content == b"x" * 2**21


async def test_results__only_the_first_200_are_kept(run):
    done = await run("for n in range(300): display(text=str(n))")
    assert (done["state"], len(done["results"])) == ("succeeded", 200)


async def test_text__surrogates_and_nul_are_recorded(run):
    done = await run("print('a\\ud800b\\x00c\\u2028d')\ndisplay(text='\\ud800\\x00')")
    assert done["stdout"] == "a?b\x00c\u2028d\n"
    assert done["results"][0]["data"] == {"text": "?\x00"}


async def test_kernel__killed_in_mid_execution_is_an_error_and_restarted(run):
    done = await run("import os\nos.kill(os.getpid(), 9)")
    assert (done["state"], done["error"]["name"]) == ("error", "ContextRestarting")
    assert (await run("1 + 1"))["results"][0]["data"]["text"] == "2"


async def test_interrupt__ends_the_execution_and_keeps_variables(api, path, run):
    body = {"code": f"kept = 3\n{ENDLESS}"}
    async with following(api, f"{path}/code", method="POST", json=body) as stream:
        await stream.until("stdout")
        interrupt = f"{stream.headers['Location']}/interrupt"
        assert (await api.post(interrupt)).status_code == 204
        told = await stream.rest()
    assert told[-1].data["state"] == "killed"
    assert told[-1].data["reason"] == "Interrupted by request."
    assert (await run("kept"))["results"][0]["data"]["text"] == "3"
    assert (await api.post(interrupt)).status_code == 204


async def test_client__who_disconnects_stops_nothing(api, path, sandbox_id):
    code = "import time\nprint('on')\ntime.sleep(1)\nprint('finished')"
    async with following(api, f"{path}/code", method="POST", json={"code": code}) as stream:
        await stream.until("stdout")
        events = stream.headers["Content-Location"]
    async with following(api, events) as again:
        told = await again.rest()
    assert "finished\n" in [one.data.get("text") for one in told]
    assert told[-1].data["state"] == "succeeded"


async def test_client__who_reads_nothing_holds_up_nobody(api, outside, path, run):
    request = (
        f"POST {path}/code HTTP/1.1\r\nHost: x\r\nX-API-Key: {outside.key}\r\nAccept: text/event-stream\r\n"
        "Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
    )
    body = '{"code": "for n in range(400): print(\'y\' * 65536)"}'
    _, writer = await asyncio.open_connection("127.0.0.1", outside.port, limit=1024)
    writer.write((request.format(length=len(body)) + body).encode())
    await writer.drain()

    async def has_ended():
        listed = (await api.get(f"{path}/code", params={"limit": 1})).json()["items"]
        return [(one["state"], one["stdout_size"]) for one in listed] == [
            ("succeeded", 400 * 65537)
        ]

    await until(has_ended, timeout=30)
    assert (await run("3"))["results"][0]["data"]["text"] == "3"
    writer.close()


async def test_interpreter__that_dies_ends_the_execution_with_a_reason(api, outside):
    async with sandbox_with_interpreter(outside) as sandbox_id:
        path = f"/v1/sandboxes/{sandbox_id}"
        async with following(api, f"{path}/code", method="POST", json={"code": ENDLESS}) as stream:
            await stream.until("stdout")
            kill = {"cmd": "pkill -9 -f interpreter.py"}
            await api.post(f"{path}/commands", json=kill)
            told = await stream.rest()
        assert told[-1].data["state"] == "lost"
        assert "interpreter" in told[-1].data["reason"]
        answer = await api.post(f"{path}/code", json={"code": "1"})
        assert (answer.status_code, answer.json()["code"]) == (409, "interpreter-missing")


async def test_deadline__in_mid_execution_ends_it_with_a_reason(api, outside):
    options = {"timeout_s": 5, "on_timeout": "delete"}
    async with sandbox_with_interpreter(outside, **options) as sandbox_id:
        path = f"/v1/sandboxes/{sandbox_id}"
        async with following(api, f"{path}/code", method="POST", json={"code": ENDLESS}) as stream:
            told = await stream.rest()
    assert (told[-1].data["state"], told[-1].data["reason"]) == ("killed", "The sandbox ended.")


async def test_pause__in_mid_execution_is_visible_and_the_next_code_resumes_the_sandbox(
    api, outside
):
    async with sandbox_with_interpreter(outside) as sandbox_id:
        path = f"/v1/sandboxes/{sandbox_id}"
        body = {"code": f"x = 4\n{ENDLESS}"}
        async with following(api, f"{path}/code", method="POST", json=body) as stream:
            await stream.until("stdout")
            assert (await api.post(f"{path}/pause")).status_code == 200
            told = await stream.rest()
        assert told[-1].data["state"] == "killed"
        assert "paused" in told[-1].data["reason"]
        resumed = await api.post(f"{path}/code", json={"code": "x"})
        assert resumed.json()["results"][0]["data"]["text"] == "4"
