"""Code over the API, in sandboxes of the template with the code interpreter."""

import time

import pytest

from tests.server.support.server_process import server_process
from tests.template.conftest import build
from tests.template.served import served_sandbox

pytestmark = [pytest.mark.image, pytest.mark.needs_engine, pytest.mark.timeout(3600)]

CHART = "import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4])\nplt.show()"


@pytest.fixture(scope="module")
def sandbox(options):
    template = build("code-interpreter-v1", options)
    variables = {f"E2B_{name.upper()}": value for name, value in options.items()}
    with server_process(variables=variables) as server:
        server.start()
        with served_sandbox(server, template=template, timeout_s=3600) as sandbox:
            yield sandbox


@pytest.fixture
def run(sandbox):
    def run(code, **body):
        return sandbox.ask("POST", "/code", json={"code": code, **body}).json()

    return run


def value_of(done):
    assert done["state"] == "succeeded", done
    return done["results"][0]["data"]["text"]


def test_code_interpreter__runs_code_of_the_api(sandbox, run):
    assert value_of(run("x = 20\nx * 2 + 2")) == "42"
    assert value_of(run("[1, 2, 3].length", language="javascript")) == "3"
    assert run("echo $((6 * 7))", language="bash")["stdout"] == "42\n"
    assert run("1 / 0")["error"]["name"] == "ZeroDivisionError"
    listed = sandbox.ask("GET", "/contexts").json()["items"]
    assert {one["language"] for one in listed} >= {"python", "javascript", "bash"}


def test_code_interpreter__figures_are_files(sandbox, run):
    done = run(CHART)
    [result] = done["results"]
    assert {"png", "chart"} <= result["sizes"].keys()
    figure = sandbox.ask("GET", f"/code/{done['id']}/results/0/png")
    assert figure.content.startswith(b"\x89PNG")
    assert sandbox.ask("GET", f"/code/{done['id']}/results/0/chart").json()["type"] == "line"


def test_code_interpreter__misbehaving_code_is_ended(run):
    late = run("kept = 1\nwhile True: pass", timeout_s=1)
    assert late["state"] == "timed_out"
    assert value_of(run("kept")) == "1"
    flood = run("print('x' * 10**8)")
    assert (flood["state"], flood["stdout_size"]) == ("succeeded", 10**8 + 1)
    killed = run("import os\nos.kill(os.getpid(), 9)")
    assert (killed["state"], killed["error"]["name"]) == ("error", "KernelEnded")
    assert value_of(run("1 + 1")) == "2"


def test_code_interpreter__pause_keeps_variables(sandbox, run):
    run("paused = 5")
    sandbox.ask("POST", "/pause")
    assert value_of(run("paused")) == "5"


def test_code_interpreter__time_of_small_executions(run):
    """Print the figures of docs/code-interpreter.md."""
    times = []
    for _ in range(100):
        began = time.perf_counter()
        value_of(run("1 + 1"))
        times.append(time.perf_counter() - began)
    print(f"p50 {sorted(times)[50] * 1000:.1f} ms, p95 {sorted(times)[95] * 1000:.1f} ms")
