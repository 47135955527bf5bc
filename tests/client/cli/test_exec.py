"""Commands in a sandbox, as if they ran here."""

import json
import os
import signal

import pytest

pytestmark = pytest.mark.needs_engine


def test_exec__output_and_exit_code_are_the_commands(sbx, web):
    done = sbx("exec", web, "--", "echo out; echo err >&2; exit 3")
    assert (done.stdout, done.stderr, done.returncode) == ("out\n", "err\n", 3)


def test_exec__several_words_are_passed_unchanged(sbx, web):
    words = ["two words", "$HOME", "it's", "--", "-l"]
    done = sbx("exec", web, "--", "printf", "%s|", *words)
    assert done.stdout == "".join(f"{word}|" for word in words)


def test_exec__workdir_user_and_env_options(sbx, web):
    line = 'echo "$A $B $PWD $USER $(id -un)"'
    done = sbx(
        *("exec", "-w", "/tmp", "-u", "root", "-e", "A=1", "-e", "B", web, line), env={"B": "b c"}
    )
    assert done.stdout.startswith("1 b c /tmp ")
    assert done.stdout.endswith("root\n")


def test_exec__stdin_is_forwarded_until_eof(sbx, web):
    content = os.urandom(700_000) + b"\r\n\x03\x04"
    done = sbx("exec", "-i", web, "--", "cat; echo done >&2", stdin=content)
    assert done.stdout == content
    assert done.stderr == "done\n"


def test_exec__command_that_ignores_stdin_ends(start, web):
    with start("exec", "-i", web, "--", "exit 4") as process:
        assert process.wait(60) == 4  # while stdin is open still


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--timeout", "1s", "{}", "--", "sleep 60"), 124),
        (("{}", "--", "kill -TERM $$"), 143),
        (("-w", "/nowhere", "{}", "--", "true"), 125),
        (("-e", "NOT_HERE", "{}", "--", "true"), 125),
        (("--url", "http://127.0.0.1:1", "{}", "--", "true"), 125),
        (("-d", "-i", "{}", "--", "true"), 2),
    ],
)
def test_exec__exit_codes_of_timeouts_signals_and_errors(sbx, web, words, code):
    done = sbx("exec", *(word.format(web) for word in words))
    assert done.returncode == code
    assert "Traceback" not in done.stderr


def test_exec__ctrl_c_interrupts_the_remote_command(sit, web):
    with sit("exec", web, "--", "trap 'echo heard; exit 9' INT; echo ready; sleep 100") as person:
        person.see("ready")
        person.type("\x03")
        person.see("heard")
        assert person.end() == 9


@pytest.mark.parametrize("lines", [0, 1])
def test_exec__closed_stdout_hangs_up_the_command(start, sbx, web, lines):
    word = f"for-nobody-{lines}"
    with start("exec", web, "--", f"yes {word}; echo not reached") as process:
        for _ in range(lines):
            assert process.stdout.readline() == f"{word}\n".encode()
        process.stdout.close()  # as `| head` does
        assert process.wait(60) == 141
        assert process.stderr.read() == b""
    line = f"while pgrep -f '^yes {word}'; do sleep 0.1; done >/dev/null; echo gone"
    assert sbx("exec", "--timeout", "20s", web, "--", line).stdout == "gone\n"


def test_exec__second_ctrl_c_detaches_from_the_command(sit, sbx, web):
    line = "trap 'echo heard' INT; echo ready; until test -e /tmp/go; do sleep 0.1; done; exit 6"
    with sit("exec", web, "--", line) as person:
        person.see("ready")
        person.type("\x03")
        person.see("heard")
        person.type("\x03")
        person.see("sbx tail")
        [command] = person.see("\n").split()[1:]
        assert person.end() == 130
    sbx("exec", web, "touch /tmp/go")
    found = sbx("tail", "--from-start", web, command)
    assert (found.stdout, found.returncode) == ("ready\nheard\n", 6)


def test_exec__json_prints_the_outcome_as_one_object(sbx, web):
    done = sbx("--json", "exec", web, "--", "echo out; echo err >&2; exit 3")
    told = json.loads(done.stdout)
    assert (told["stdout"], told["stderr"], told["exit_code"]) == ("out\n", "err\n", 3)
    assert (done.returncode, done.stderr) == (3, "")


def test_tail__follows_a_detached_command_from_its_last_lines(sbx, web):
    left = sbx("exec", "-d", web, "--", "seq 100; printf '%s' end; exit 5").stdout.strip()
    assert sbx("tail", "-n", "2", web, left).stdout == "100\nend"
    followed = sbx("tail", "-c", "5", web, left[-6:])
    assert (followed.stdout, followed.returncode) == ("0\nend", 5)
    events = [json.loads(line) for line in sbx("--json", "tail", web, left).stdout.splitlines()]
    assert [event["type"] for event in events][-1] == "exit"


def test_exec__slow_reader_of_stdout_does_not_block_exit(start, web):
    with start("exec", web, "--", "echo one; sleep 100") as process:
        assert process.stdout.readline() == b"one\n"
        process.stdout.close()
        assert process.wait(60) == 128 + signal.SIGPIPE
        assert b"Traceback" not in process.stderr.read()


def test_exec__deleting_the_sandbox_ends_the_command(start, sbx):
    ended = sbx("create", "--template", "base").stdout.strip()
    with start("exec", "-i", ended, "--", "echo ready; cat") as process:
        assert process.stdout.readline() == b"ready\n"
        sbx("rm", ended)
        _, said = process.communicate(timeout=60)
    assert process.returncode in (125, 128 + signal.SIGKILL)
    assert b"Traceback" not in said
