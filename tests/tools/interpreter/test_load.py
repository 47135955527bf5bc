"""Many contexts at once, and code that starts processes or writes more than anybody reads."""

import asyncio

import pytest

from sandbox_tools.interpreter.process import CONTEXT_VARIABLE
from sandbox_tools.toolkit.process_tree import find_processes_with
from tests.tools.interpreter.interpreter_process import started_interpreter

pytestmark = pytest.mark.asyncio(loop_scope="session")

CONTEXTS = 50
FORKS = """
import os, time
for _ in range(100):
    if not os.fork():
        os.setsid()
        time.sleep(600)
print("forked")
while True: pass
"""


async def test_contexts__fifty_interleave_and_keep_their_own_variables(tmp_path):
    limit = ("--most-contexts", str(CONTEXTS + 2))
    async with started_interpreter(tmp_path, *limit) as interpreter:
        languages = ["python"] * 2 + ["js"] * 3 + ["bash"] * (CONTEXTS - 5)
        contexts = await asyncio.gather(*(interpreter.context(language=one) for one in languages))
        code = {"python": "n = {}", "js": "var n = {}", "bash": "n={}"}
        read = {
            "python": "print(n)",
            "js": "console.log(n)",
            "bash": "sleep 0.0$((RANDOM % 9)); echo $n",
        }

        async def use(number):
            language, context = languages[number], contexts[number]
            for turn in range(2):
                await interpreter.run(code[language].format(number * 10 + turn), context_id=context)
                answer = await interpreter.run(read[language], context_id=context)
                assert answer.text() == f"{number * 10 + turn}\n"

        await asyncio.gather(*(use(number) for number in range(CONTEXTS)))
        refused = await interpreter.client.post("/contexts", json={})
        assert refused.status_code == 429
        await asyncio.gather(
            *(interpreter.client.delete(f"/contexts/{context}") for context in contexts)
        )
        assert not any(find_processes_with(CONTEXT_VARIABLE, context) for context in contexts)


async def test_forks__harm_no_neighbour_and_end_with_their_context(interpreter):
    context = await interpreter.context()
    async with interpreter.streaming(FORKS, context_id=context) as lines:
        while "forked" not in await anext(lines):
            pass
        assert len(find_processes_with(CONTEXT_VARIABLE, context)) > 100
        assert (await interpreter.run("1 + 1")).result == "2"
    await interpreter.client.delete(f"/contexts/{context}")
    assert not find_processes_with(CONTEXT_VARIABLE, context)


@pytest.mark.parametrize(
    ("language", "code"),
    [
        ("python", "print('x' * 10_000_000, end='')"),
        ("js", "process.stdout.write('x'.repeat(10_000_000)); 0"),
        ("bash", "head -c 10000000 /dev/zero | tr '\\0' x"),
    ],
)
async def test_output__of_10_mb_without_a_newline_is_complete(interpreter, language, code):
    context = await interpreter.context(language=language)
    answer = await interpreter.run(code, context_id=context)
    assert answer.text() == "x" * 10_000_000


@pytest.mark.parametrize(
    ("language", "code", "text"),
    [
        ("js", "console.log('\\u2028\\x85\\0é😀' + '\\ud800')", "\u2028\x85\0é😀\ufffd\n"),
        ("bash", "printf 'a\\0b\\u2028\\xff\\n'", "a\0b\u2028\ufffd\n"),
    ],
)
async def test_output__any_text_arrives(interpreter, language, code, text):
    assert (await interpreter.run(code, language=language)).text() == text


async def test_flood__that_nobody_reads_ends_with_its_client(interpreter):
    context = await interpreter.context()
    async with interpreter.streaming("while True: print('x' * 1000)", context_id=context) as lines:
        await anext(lines)
    # Interrupted although its output is dropped as fast as it comes.
    assert (await interpreter.run("1 + 1", context_id=context)).result == "2"
    assert (await interpreter.run("1 + 1")).result == "2"
