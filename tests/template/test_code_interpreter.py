"""The code interpreter in sandboxes of its template, as clients outside reach it."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

import httpx
import pytest
from e2b import Sandbox

from tests.engine.engine_process import running_engine
from tests.template.code_interpreter import Interpreter
from tests.template.computer import Computer
from tests.template.conftest import build

pytestmark = [pytest.mark.image, pytest.mark.needs_engine, pytest.mark.timeout(3600)]

MEMORY = "cat /proc/[0-9]*/smaps_rollup 2>/dev/null | awk '/^Pss:/ { kb += $2 } END { print int(kb / 1024) }'"
CHART = "import matplotlib.pyplot as plt\nplt.plot([1, 2], [3, 4], label='a')\nplt.title('T')\nplt.show()"
FLOOD = "while True: print('x' * 1_000_000, end='')"
ENDLESS = "while True: pass"
FORKS = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"


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


@pytest.mark.parametrize("code", [FORKS, FLOOD, ENDLESS])
def test_bad_code__harms_no_neighbour_and_leaves_nothing_running(interpreter_of, code):
    with interpreter_of() as interpreter, interpreter_of() as neighbour:
        interpreter.wait()
        before = interpreter.processes()
        with interpreter.streaming(code) as lines:
            assert next(lines)
            assert neighbour.result("1 + 1") == "2"
            assert neighbour.result("1 + 1", language="js") == "2"
        interpreter.wait()
        assert interpreter.processes() <= before + 2  # an answer's own
        interpreter.computer.run("/opt/sandbox/start-services.sh --check")


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


def test_pause__in_mid_execution_ends_the_stream_and_keeps_variables(interpreter_of):
    with interpreter_of() as interpreter:
        interpreter.run("kept = 41")
        with interpreter.streaming(ENDLESS) as lines:
            assert next(lines)
            interpreter.computer.sandbox.pause()
            with pytest.raises(httpx.HTTPError):
                list(lines)
        interpreter.computer.sandbox.connect()
        assert interpreter.result("kept + 1") == "42"


def test_engine__that_is_killed_in_mid_execution_ends_the_stream_and_keeps_variables():
    with running_engine() as engine:
        name = build("code-interpreter-v1", engine.options)
        with (
            Sandbox.create(name, timeout=600, **engine.options) as sandbox,
            Interpreter(Computer(sandbox, engine.options)) as interpreter,
        ):
            interpreter.run("kept = 41")
            with interpreter.streaming(ENDLESS) as lines:
                assert next(lines)
                asyncio.run(engine.restart())
                with pytest.raises(httpx.HTTPError):
                    list(lines)
            interpreter.wait()
            assert interpreter.result("kept + 1") == "42"


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
