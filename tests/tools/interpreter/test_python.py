"""Python contexts, in the words of E2B's protocol."""

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_execute__streams_output_and_ends_with_the_value_of_the_last_line(interpreter):
    answer = await interpreter.run("import sys\nprint(1)\nprint(2, file=sys.stderr)\n'text'")
    assert [line["type"] for line in answer.lines] == [
        *("number_of_executions", "stdout", "stderr", "result", "end_of_execution")
    ]
    assert (answer.text(), answer.text("stderr")) == ("1\n", "2\n")
    assert answer.results == [{"type": "result", "is_main_result": True, "text": "text"}]
    assert answer.of("stdout")[0]["timestamp"].endswith("+00:00")


async def test_execute__keeps_variables_and_counts_executions(interpreter):
    context = await interpreter.context()
    await interpreter.run("kept = 6", context_id=context)
    answer = await interpreter.run("kept * 7", context_id=context, env_vars={"A": "b"})
    assert answer.result == "42"
    assert answer.of("number_of_executions")[0]["execution_count"] == 2
    assert (await interpreter.contexts())[-1]["execution_count"] == 2


async def test_execute__reports_an_exception_once(interpreter):
    answer = await interpreter.run("def fail():\n    return 1 / 0\nfail()")
    assert (answer.error["name"], answer.error["value"]) == (
        *("ZeroDivisionError", "division by zero"),
    )
    assert "in fail()" in answer.error["traceback"]
    assert "\x1b" not in answer.error["traceback"]


async def test_execute__displays_come_before_the_result_with_all_formats(interpreter):
    code = "from IPython.display import HTML, display\ndisplay(HTML('<b>1</b>'))\n[1, float('nan')]"
    shown, result = (await interpreter.run(code)).results
    assert (shown["html"], shown["is_main_result"]) == ("<b>1</b>", False)
    assert (result["text"], result["json"]) == ("[1, nan]", [1, None])
    bundle = "class A:\n    def _repr_mimebundle_(self, **_):\n        return {'a/b': 'c'}\nA()"
    assert (await interpreter.run(bundle)).results[0]["extra"] == {"a/b": "c"}


async def test_execute__output_of_programs_is_complete_and_in_order(interpreter):
    code = (
        "import subprocess\n"
        "subprocess.run('head -c 300000 /dev/zero | tr \"\\\\0\" x', shell=True)\n"
        "subprocess.run('echo no >&2; printf ü', shell=True)\n"
        "'result'"
    )
    answer = await interpreter.run(code)
    assert (answer.text(), answer.text("stderr")) == ("x" * 300_000 + "ü", "no\n")
    assert answer.lines[-2]["type"] == "result"


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (r"print('\u2028\x85é😀')", "\u2028\x85é😀\n"),
        (r"print('a\0b')", "a\0b\n"),
        (r"print('\ud800!')", "?!\n"),
        ("print('', end='')", ""),
    ],
)
async def test_execute__any_text_arrives_as_ascii_json(interpreter, code, text):
    assert (await interpreter.run(code)).text() == text


async def test_execute__lines_of_many_megabytes_arrive_in_parts(interpreter):
    answer = await interpreter.run("print('x' * 20_000_000)")
    assert len(answer.text()) == 20_000_001
    assert max(len(line.get("text", "")) for line in answer.lines) < 100_000
    assert len((await interpreter.run("'x' * 20_000_000")).result) < 11_000_000


async def test_execute__indented_code_and_empty_code_run(interpreter):
    answer = await interpreter.run("\n    a = 2\n    a + 1\n", env_vars={"A": "1"})
    assert answer.result == "3"
    assert (await interpreter.run("")).lines[-1]["type"] == "end_of_execution"


async def test_execute__code_that_reads_input_fails_at_once(interpreter):
    assert (await interpreter.run("input()")).error["name"] == "StdinNotImplementedError"


async def test_env_vars__apply_to_one_execution(interpreter):
    value = "a'b\"\n\\é"
    code = "import os; os.environ.get('ONLY_HERE')"
    answer = await interpreter.run(f"{code} == {value!r}", env_vars={"ONLY_HERE": value})
    assert answer.result == "True"
    assert (await interpreter.run(code)).results == []
    odd = {"A=B": "not a name", "ODD": "a\0b", "EVEN": "2"}
    assert (await interpreter.run("os.environ['EVEN']", env_vars=odd)).result == "2"
    await interpreter.run("1", env_vars={"PATH": "nowhere"})
    assert (await interpreter.run("!echo found")).text() == "found\r\n"


async def test_images__that_are_saved_or_shown_become_results(interpreter, tmp_path):
    (tmp_path / "PIL").mkdir()
    (tmp_path / "PIL/__init__.py").touch()
    (tmp_path / "PIL/Image.py").write_text(
        "class Image:\n"
        "    def save(self, fp, format=None):\n        fp == 'x.png' or fp.write('saved')\n"
        "    def show(self):\n        raise OSError\n"
        "    def _repr_png_(self):\n        return b'png'\n"
    )
    context = await interpreter.context(cwd=str(tmp_path))
    code = "import io\nfrom PIL.Image import Image\nImage().save('x.png')\nImage().show()\nImage().save(io.StringIO())"
    answer = await interpreter.run(code, context_id=context)
    assert [line["png"] for line in answer.results] == ["cG5n"] * 2
