import asyncio

import httpx
import pytest

from sandbox_tools.toolkit.process_tree import is_alive
from tests.tools.interpreter.interpreter_process import started_interpreter

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_contexts__defaults_exist_from_the_start_and_the_newest_is_last(tmp_path):
    async with started_interpreter(tmp_path, "--most-contexts", "3") as interpreter:
        python, javascript = await interpreter.contexts()
        assert python == {
            "id": python["id"],
            "language": "python",
            "cwd": str(tmp_path),
            "busy": False,
            "execution_count": 0,
        }
        assert javascript["language"] == "javascript"
        first = await interpreter.run("Out, [name for name in dir() if name[0] != '_']")
        assert first.result == "({}, ['In', 'Out', 'exit', 'get_ipython', 'open', 'quit'])"
        assert first.of("number_of_executions")[0]["execution_count"] == 1
        created = await interpreter.context(language="bash", cwd="/usr")
        newest = (await interpreter.contexts())[-1]
        assert (newest["id"], newest["language"], newest["cwd"]) == (created, "bash", "/usr")
        refused = await interpreter.client.post("/contexts", json={})
        assert (refused.status_code, refused.text) == (
            *(429, "There are 3 contexts already. Delete one before you create another."),
        )
        assert (await interpreter.client.delete(f"/contexts/{created}")).json() is None
        await interpreter.context(language="bash")


async def test_contexts__concurrent_requests_for_a_language_share_one_context(interpreter):
    runs = [interpreter.run("echo $$", language="bash") for _ in range(8)]
    assert len({answer.text() for answer in await asyncio.gather(*runs)}) == 1


async def test_contexts__executions_of_one_context_run_one_after_the_other(interpreter):
    context = await interpreter.context()
    await interpreter.run("import time; running = 0; most = 0", context_id=context)
    code = "running += 1; most = max(most, running); time.sleep(0.02); running -= 1"
    await asyncio.gather(*(interpreter.run(code, context_id=context) for _ in range(8)))
    assert (await interpreter.run("most", context_id=context)).result == "1"
    counts = [
        one["execution_count"] for one in await interpreter.contexts() if one["id"] == context
    ]
    assert counts == [10]


async def test_contexts__a_busy_context_does_not_delay_others(interpreter):
    context = await interpreter.context()
    async with interpreter.streaming("import time; time.sleep(60)", context_id=context) as lines:
        await anext(lines)
        assert [one["busy"] for one in await interpreter.contexts() if one["id"] == context] == [
            True
        ]
        assert (await interpreter.run("1 + 1")).result == "2"


async def test_contexts__restart_drops_variables_and_keeps_the_id(interpreter):
    context = await interpreter.context(cwd="/usr")
    await interpreter.run("a = 1", context_id=context)
    assert (await interpreter.client.post(f"/contexts/{context}/restart")).json() is None
    answer = await interpreter.run(
        "'a' in globals(), __import__('os').getcwd()", context_id=context
    )
    assert answer.result == "(False, '/usr')"


@pytest.mark.parametrize(
    ("action", "name"), [("restart", "ContextRestarting"), ("delete", "ContextDeleted")]
)
async def test_contexts__a_running_execution_ends_with_its_context(interpreter, action, name):
    context = await interpreter.context()
    running = asyncio.create_task(
        interpreter.run("import time; time.sleep(60)", context_id=context)
    )
    await interpreter.wait_busy(context)
    path = f"/contexts/{context}"
    if action == "restart":
        await interpreter.client.post(f"{path}/restart")
    else:
        await interpreter.client.delete(path)
    assert (await running).error["name"] == name


async def test_contexts__deleted_ones_leave_no_process(interpreter):
    context = await interpreter.context()
    code = "import subprocess\nprint(subprocess.Popen(['sleep', '77'], start_new_session=True).pid)"
    pid = int((await interpreter.run(code, context_id=context)).text())
    assert is_alive(pid)
    await interpreter.client.delete(f"/contexts/{context}")
    assert not is_alive(pid)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "text"),
    [
        ("POST", "/execute", {"code": "1", "context_id": "no"}, 404, "Context no not found"),
        (
            *("POST", "/execute", {"code": "1", "context_id": "a", "language": "b"}, 400),
            "Only one of context_id or language can be provided",
        ),
        ("POST", "/execute", {"code": 1}, 400, "code must be a string."),
        ("POST", "/execute", [], 400, "The request's body is not a JSON object."),
        ("POST", "/execute", {"code": "1", "language": "cobol"}, 400, "The language 'cobol' is"),
        (
            *("POST", "/execute", {"code": "1", "env_vars": {"A": 1}}, 400),
            "env_vars must be an object whose values are strings.",
        ),
        ("POST", "/contexts", {"cwd": "/nowhere"}, 400, "The directory /nowhere does not exist."),
        ("POST", "/contexts/no/restart", None, 404, "Context no not found"),
        ("POST", "/contexts/no/interrupt", None, 404, "Context no not found"),
        ("DELETE", "/contexts/no", None, 404, "Context no not found"),
    ],
)
async def test_requests__invalid_ones_are_refused_with_a_sentence(
    interpreter, method, path, body, status, text
):
    answer: httpx.Response = await interpreter.client.request(method, path, json=body)
    assert answer.status_code == status
    assert answer.text.startswith(text)


async def test_requests__that_are_no_json_or_too_large_are_refused(interpreter):
    answer = await interpreter.client.post("/execute", content=b"{")
    assert (answer.status_code, answer.text) == (400, "The request's body is not JSON.")
    large = await interpreter.client.post("/execute", content=b" " * (17 << 20))
    assert (large.status_code, large.text) == (400, "The request is larger than 16 MiB.")
