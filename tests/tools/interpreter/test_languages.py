import shutil

import pytest

pytestmark = pytest.mark.asyncio(loop_scope="session")

needs_java = pytest.mark.skipif(shutil.which("javac") is None, reason="no JDK is installed")
HELLO = [
    ("js", "console.log('Hello');\n`${1 + 1}`", "2"),
    ("ts", "enum Kind { A = 2 }\nconst text: string = 'Hello'\nconsole.log(text)\nKind.A", "2"),
    ("bash", "echo Hello", None),
    pytest.param("java", 'System.out.println("Hello");\nint a = 1;\na + 1', "2", marks=needs_java),
]


@pytest.mark.parametrize(("language", "code", "result"), HELLO)
async def test_languages__print_and_evaluate(interpreter, language, code, result):
    answer = await interpreter.run(code, language=language)
    assert answer.text() == "Hello\n"
    assert [line["text"] for line in answer.results] == ([result] if result else [])


@pytest.mark.parametrize(
    ("language", "code", "name", "value"),
    [
        ("js", "null.x", "TypeError", "Cannot read properties of null (reading 'x')"),
        ("js", "const", "SyntaxError", "Unexpected end of input"),
        ("ts", "const x: = 1", "SyntaxError", None),
        ("bash", "(exit 3)", "ExitStatus", "3"),
        pytest.param(
            *("java", "1 / 0", "java.lang.ArithmeticException", "/ by zero"), marks=needs_java
        ),
        pytest.param("java", "foo bar", "CompilationError", None, marks=needs_java),
    ],
)
async def test_languages__report_errors(interpreter, language, code, name, value):
    error = (await interpreter.run(code, language=language)).error
    assert error["name"] == name
    assert value is None or error["value"] == value


@pytest.mark.parametrize(
    ("language", "code", "unset"),
    [
        ("js", "console.log(process.env.ONLY ?? 'unset')", "unset\n"),
        ("bash", "echo ${ONLY-unset}", "unset\n"),
        pytest.param(
            *("java", 'System.out.println(System.getProperty("ONLY"));', "null\n"),
            marks=needs_java,
        ),
    ],
)
async def test_env_vars__apply_to_one_execution(interpreter, language, code, unset):
    value = 'it\'s "é" \\ $HOME'
    answer = await interpreter.run(code, language=language, env_vars={"ONLY": value})
    assert answer.text() == f"{value}\n"
    assert (await interpreter.run(code, language=language)).text() == unset


@pytest.mark.parametrize(
    ("code", "result"),
    [
        ("const a = 1\nconst b = 2", None),
        ("const a = 3; a + b", "5"),
        ("await Promise.resolve('later')", "later"),
        ("import { readFileSync as read, constants } from 'node:fs'; typeof read", "function"),
        ("import fs, * as all from 'fs'\nfs === all.default", "true"),
        ("import 'os'\n(await import('os')).EOL.length", "1"),
        ("import { sep } from 'npm:path'\nsep", "/"),
        ("import {\n  join, // comment\n  sep as other,\n} from \"path\"\njoin('a', other)", "a/"),
        ("let s = \"import x from 'y'\"; s.length", "17"),
        ("`${`import a from 'b'`} import('c')`.length", "29"),
        ("/import x from 'y'/.test('no') // import a from 'b'", "false"),
        ("({ import: 1 }).import", "1"),
        ("4 / 2 / 1 /* import('x') */", "2"),
        ("require('path').basename('/a/b')", "b"),
        ("({ a: [1] })", "{ a: [ 1 ] }"),
        ("undefined", None),
        ("10n ** 20n", "100000000000000000000n"),
    ],
)
async def test_javascript__evaluates_modules_and_top_level_declarations(interpreter, code, result):
    answer = await interpreter.run(code, language="js")
    assert [line["text"] for line in answer.results] == ([] if result is None else [result])


async def test_javascript__large_output_is_complete(interpreter):
    code = "process.stdout.write('é'.repeat(2_000_000)); 1"
    answer = await interpreter.run(code, language="js")
    assert (answer.text(), answer.result) == ("é" * 2_000_000, "1")


async def test_bash__keeps_directory_variables_and_functions(interpreter):
    context = await interpreter.context(language="bash")
    await interpreter.run("cd /usr; v=1; f() { echo $v; }", context_id=context)
    assert (await interpreter.run("pwd; f", context_id=context)).text() == "/usr\n1\n"


@pytest.mark.parametrize("code", ["set -e; false; echo not", "set -e\nf() { false; echo not; }\nf"])
async def test_bash__errexit_ends_the_cell_and_not_the_shell(interpreter, code):
    context = await interpreter.context(language="bash")
    answer = await interpreter.run(f"v=1\n{code}", context_id=context)
    assert (answer.text(), answer.error["value"]) == ("", "1")
    assert (await interpreter.run("echo $v", context_id=context)).text() == "1\n"


async def test_bash__closed_and_redirected_streams_do_not_hang(interpreter):
    context = await interpreter.context(language="bash")
    await interpreter.run("exec >/dev/null 2>&-; sleep 60 & echo 1", context_id=context)
    assert (await interpreter.run("echo 2", context_id=context)).text() == ""
