from datetime import UTC, datetime

import pytest

from sandbox_client.cli.logs.log_lines import LogLines
from sandbox_client.cli.output.output import Output
from sandbox_client.models import LogEvent, LogGap, LogRecord

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


@pytest.fixture
def lines():
    return LogLines(Output(as_json=False, quiet=False, colours=False), {})


def record(kind, *, command="c1", **told):
    fields = {"source": "command", "seq": 1, "sandbox_id": "s1", "command_id": command}
    return LogRecord.model_validate({**fields, "type": kind, "at": AT, **told})


def texts(lines):
    return [line.partition("Z  ")[2] or line[21:] for line in lines]


def test_log_lines__unfinished_line_is_held_back(lines):
    assert texts(lines.of(record("stdout", text="one\ntw"))) == ["command c1      one"]
    assert texts(lines.of(record("stderr", text="err\n"))) == ["command c1      err"]
    assert texts(lines.of(record("stdout", text="o\r\nthr"))) == ["command c1      two"]
    assert texts(lines.of(record("stdout", command="c2", text="x"))) == []
    ended = texts(lines.of(record("exit", state="exited", exit_code=0)))
    assert ended == ["command c1      thr", "command c1      [exited with 0]"]
    assert texts(lines.rest()) == ["command c2      x"]
    assert texts(lines.rest()) == []


def test_log_lines__escape_sequences_are_made_visible(lines):
    [line] = texts(lines.of(record("stdout", text="\x1b]0;title\x07\ta\n")))
    assert line == "command c1      \\x1b]0;title\\x07\ta"
    [line] = texts(lines.of(record("stdout", base64="/wo=")))
    assert line == "command c1      \ufffd"


def test_log_lines__results_and_exceptions_of_code_are_shown(lines):
    code = {"source": "code", "sizes": {"png": 7}}
    assert texts(lines.of(record("result", data={"text": "42"}, **code))) == ["code c1         42"]
    assert texts(lines.of(record("result", data={}, **code))) == ["code c1         [png]"]
    error = {"name": "NameError", "value": "x", "traceback": "Traceback\nNameError: x\n"}
    raised = texts(lines.of(record("error", error=error, **code)))
    assert raised == ["code c1         Traceback", "code c1         NameError: x"]


def test_log_lines__gaps_are_reported(lines):
    assert texts(lines.of(record("gap", size=7)))[0].endswith("[7 bytes discarded]")
    [line] = lines.of(LogGap(type="gap", after=3, oldest=9))
    assert "between 3 and 9" in line


def test_log_lines__several_sandboxes_are_labelled():
    lines = LogLines(Output(as_json=False, quiet=False, colours=False), {"s1": "web", "s2": "w"})
    event = LogEvent.model_validate(
        {
            "source": "events",
            "sandbox_id": "s2",
            "seq": 1,
            "type": "sandbox.failed",
            "at": AT,
            "cause": "provider",
            "actor": None,
            "reason": "It is\x1b gone.",
            "data": {},
        }
    )
    [line] = texts(lines.of(event))
    assert line == "w    events          sandbox.failed  It is\\x1b gone. (provider)"
