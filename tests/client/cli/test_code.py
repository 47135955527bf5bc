"""sbx code, with a small interpreter in the sandbox."""

import base64

import pytest

from tests.server.reference.example_calls import STAND_INS

pytestmark = pytest.mark.needs_engine

FIGURE = base64.b64encode(b"a figure").decode()


@pytest.fixture
def code(sbx, web):
    """Run code in a sandbox with an interpreter."""
    listens = "until (echo >/dev/tcp/127.0.0.1/49999) 2>/dev/null; do sleep 0.05; done"
    has_one = sbx("exec", web, "--", "(echo >/dev/tcp/127.0.0.1/49999) 2>/dev/null")
    if has_one.returncode:
        sbx("cp", str(STAND_INS / "interpreter"), f"{web}:interpreter.py")
        sbx("exec", "-d", web, "--", "python3 interpreter.py")
        sbx("exec", web, "--", listens)

    def code(*words, **options):
        return sbx("code", web, *words, **options)

    return code


def test_code__output_value_and_errors_are_shown(code):
    done = code("-c", "import sys\nprint('out')\nprint('err', file=sys.stderr)\n6 * 7")
    assert (done.stdout, done.stderr, done.returncode) == ("out\n42\n", "err\n", 0)
    failed = code("-c", "1 / 0")
    assert "ZeroDivisionError" in failed.stderr
    assert (failed.stdout, failed.returncode) == ("", 1)


def test_code__reads_a_file_or_stdin_and_variables_stay(code, tmp_path):
    (tmp_path / "mine.py").write_text("x = 'kept'")
    assert code("mine.py").returncode == 0
    assert code(stdin=b"print(x)").stdout == "kept\n"
    (tmp_path / "other.java").write_text("1")
    refused = code("other.java")
    assert (refused.returncode, "no language 'java'" in refused.stderr) == (125, True)


def test_code__env_timeout_and_context_options(code):
    named = code("-e", "A=b", "-c", "import os\nos.environ['A']")
    assert named.stdout == "'b'\n"
    late = code("--timeout", "1s", "-c", "print('on')\nwhile True: pass")
    assert (late.stdout, late.returncode) == ("on\n", 124)
    assert code("--context", "absent", "-c", "1").returncode == 125


def test_code__figures_are_saved_as_files(code, tmp_path):
    done = code("--save", "figures", "-c", f"display(png={FIGURE!r}, text='<Figure>')")
    [file] = (tmp_path / "figures").iterdir()
    assert (file.read_bytes(), file.suffix) == (b"a figure", ".png")
    assert f"Saved figures/{file.name}" in done.stderr
    assert done.stdout == ""
    assert code("-c", f"display(png={FIGURE!r}, text='<Figure>')").stdout == "<Figure>\n"


def test_code__ctrl_c_interrupts_the_code(sit, code, web):
    code("-c", "1")
    with sit("code", web, "-c", "kept = 9\nprint('ready')\nwhile True: pass") as person:
        person.see("ready")
        person.type("\x03")
        assert person.end() == 130
    assert code("-c", "kept").stdout == "9\n"
