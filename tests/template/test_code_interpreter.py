"""The code interpreter in sandboxes of its template, as clients outside reach it."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import httpx
import pytest
from e2b import Sandbox

from tests.template.computer import Computer

pytestmark = [pytest.mark.image, pytest.mark.needs_engine, pytest.mark.timeout(3600)]

PORT = 49999
MEMORY = "cat /proc/[0-9]*/smaps_rollup 2>/dev/null | awk '/^Pss:/ { kb += $2 } END { print int(kb / 1024) }'"
CHART = "import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4], label='a')\nplt.title('T')\nplt.show()"
FORKS = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"


class Interpreter:
    """The interpreter of one sandbox."""

    def __init__(self, computer: Computer) -> None:
        self.computer = computer
        self._client = httpx.Client(
            base_url=computer.options["sandbox_url"],
            headers={"Host": computer.host(PORT)},
            timeout=120,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def run(self, code: str, **options: object) -> list[dict[str, Any]]:
        answer = self._client.post("/execute", json={"code": code, **options})
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.content.splitlines()]

    def result(self, code: str, **options: object) -> str:
        lines = self.run(code, **options)
        assert not self.of("error", lines), lines
        return "".join(line["text"] for line in lines if line["type"] in ("result", "stdout"))

    def of(self, kind: str, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [line for line in lines if line["type"] == kind]

    def leave(self, code: str, **options: object) -> None:
        """Run code and close the connection once it has begun."""
        with self._client.stream("POST", "/execute", json={"code": code, **options}) as answer:
            assert next(answer.iter_lines())

    def wait(self) -> None:
        for _ in range(120):
            try:
                if self.result("1 + 1") == "2":
                    return
            except (AssertionError, httpx.HTTPError, json.JSONDecodeError):
                time.sleep(0.25)
        raise AssertionError("the interpreter has not recovered")


@pytest.fixture(scope="module")
def interpreter_of(computer_of, with_code):
    """Start sandboxes of a template of the code interpreter."""

    @contextmanager
    def start(name: str = with_code) -> Iterator[Interpreter]:
        with computer_of(name) as computer, Interpreter(computer) as interpreter:
            yield interpreter

    return start


@pytest.fixture(scope="module")
def interpreter(interpreter_of):
    with interpreter_of() as interpreter:
        yield interpreter


def test_python__runs_as_root_in_home_and_sees_what_users_install(interpreter):
    assert interpreter.result("import os; os.getcwd(), os.getuid()") == "('/home/user', 0)"
    interpreter.computer.run("pip install --quiet six==1.16.0")
    assert interpreter.result("import six; six.__version__") == "1.16.0"


def test_python__charts_data_and_images_have_their_formats(interpreter):
    (chart,) = interpreter.of("result", interpreter.run(CHART))
    assert chart["png"]
    assert (chart["chart"]["type"], chart["chart"]["title"]) == ("line", "T")
    (data,) = interpreter.of(
        "result", interpreter.run("import pandas\npandas.DataFrame({'a': [1, float('nan')]})")
    )
    assert data["data"] == {"a": [1, None]}
    assert "<table" in data["html"]
    code = "from PIL import Image\nImage.new('RGB', (2, 2)).save('/tmp/x.png')"
    (image,) = interpreter.of("result", interpreter.run(code))
    assert image["png"]


@pytest.mark.parametrize(
    ("language", "code", "result"),
    [
        ("js", "`${[1, 2].length}`", "2"),
        ("ts", "const a: number = 2; a", "2"),
        ("bash", "echo 2", "2\n"),
    ],
)
def test_languages__are_installed(interpreter, language, code, result):
    assert interpreter.result(code, language=language) == result


def test_envs__of_the_sandbox_are_in_each_language(options, with_code):
    variables = {"MINE": "yes"}
    with (
        Sandbox.create(with_code, timeout=600, envs=variables, **options) as sandbox,
        Interpreter(Computer(sandbox, options)) as interpreter,
    ):
        assert interpreter.result("import os; os.environ['MINE']") == "yes"
        assert interpreter.result("process.env.MINE", language="js") == "yes"
        assert interpreter.result("echo $MINE", language="bash") == "yes\n"


def test_output__of_100_mb_on_one_line_is_complete_and_needs_little_memory(interpreter):
    lines = interpreter.run("print('x' * 100_000_000)")
    assert sum(len(line["text"]) for line in interpreter.of("stdout", lines)) == 100_000_001
    status = interpreter.computer.run(
        "grep VmHWM /proc/$(pgrep -f 'bin/python.*[s]erve-code' | tail -n 1)/status", user="root"
    )
    assert int(status.split()[1]) >> 10 < 150


def test_memory__that_is_used_up_ends_the_execution_and_not_the_services(interpreter_of):
    with interpreter_of() as interpreter:
        lines = interpreter.run("kept = bytearray()\nwhile True: kept += bytes(50_000_000)")
        (error,) = interpreter.of("error", lines)
        assert error["name"] in ("KernelEnded", "MemoryError")
        interpreter.wait()
        interpreter.computer.run("/opt/sandbox/start-services.sh --check")


def test_forks__without_end_are_ended_with_their_client(interpreter_of):
    with interpreter_of() as interpreter:
        interpreter.leave(FORKS)
        interpreter.wait()
        left = interpreter.computer.run("pgrep -fc python_kernel.py; true", user="root")
        assert int(left) <= 2


@pytest.mark.parametrize(
    "pattern", ["[p]ython_kernel.py", "[u]vicorn main:app", "[j]upyter-server"]
)
def test_processes__that_are_killed_start_again(interpreter_of, pattern):
    with interpreter_of() as interpreter:
        interpreter.computer.run(f"pkill -9 -f '{pattern}'", user="root")
        interpreter.wait()


def test_pause__keeps_variables(interpreter_of):
    with interpreter_of() as interpreter:
        interpreter.run("kept = 41")
        interpreter.run("const kept = 40", language="js")
        interpreter.computer.sandbox.pause()
        interpreter.computer.sandbox.connect()
        assert interpreter.result("kept + 1") == "42"
        assert interpreter.result("kept + 1", language="js") == "41"


def test_memory__of_an_idle_sandbox_is_within_the_limit(interpreter_of):
    with interpreter_of() as interpreter:
        used = int(interpreter.computer.run(MEMORY, user="root"))
        print(f"code-interpreter-v1 idles with {used} MiB")
        assert 50 < used < 260


@pytest.mark.parametrize(
    ("language", "code", "result"),
    [
        ("r", "print(1 + 1)", "[1] 2\n"),
        ("java", "int a = 1; a + 1", "2"),
        ("python", "import cv2, gensim, librosa, nltk, numba, skimage, spacy; 2", "2"),
    ],
)
def test_full__has_more_languages_and_packages(full_interpreter, language, code, result):
    assert full_interpreter.result(code, language=language) == result


def test_full__an_endless_loop_of_r_is_interrupted(full_interpreter):
    full_interpreter.result("kept <- 2; print(1)", language="r")
    full_interpreter.leave("while (TRUE) {}", language="r")
    assert full_interpreter.result("print(kept)", language="r") == "[1] 2\n"


@pytest.fixture(scope="module")
def full_interpreter(interpreter_of, with_all_code):
    with interpreter_of(with_all_code) as interpreter:
        yield interpreter
