import json
import logging

import pytest

from sandbox_server.structured_logging import (
    JsonFormatter,
    TextFormatter,
    add_to_log_context,
    configure_logging,
    log_context,
)

log = logging.getLogger("sandbox_server.test")


def record(message, *arguments, failure=None):
    failed = None if failure is None else (type(failure), failure, None)
    return logging.LogRecord(
        "sandbox_server.jobs.worker", logging.WARNING, "", 0, message, arguments, failed
    )


def test_log__lines_carry_their_context():
    with log_context(request_id="r1"):
        add_to_log_context(sandbox_id="s1")
        text = TextFormatter().format(record("job failed kind=%s", "sandbox"))
    assert text.endswith("WARNING jobs.worker job failed kind=sandbox request_id=r1 sandbox_id=s1")
    assert TextFormatter().format(record("later")).endswith(" later")


def test_log__a_context_ends_with_its_block():
    with log_context(request_id="outer"):
        with log_context(request_id="inner"):
            pass
        assert "request_id=outer" in TextFormatter().format(record("x"))
    assert "request_id" not in TextFormatter().format(record("x"))


def test_log__a_value_cannot_forge_a_line_or_field():
    with log_context(request_id='a" level=INFO\nforged'):
        (line,) = TextFormatter().format(record("x")).splitlines()
    assert line.endswith(r'request_id="a\" level=INFO\nforged"')


def test_log__json_is_one_object_per_line_with_the_traceback():
    with log_context(sandbox_id="s1"):
        text = JsonFormatter().format(record("it\nbroke", failure=ValueError("why")))
    line = json.loads(text)
    assert "\n" not in text
    assert (line["message"], line["sandbox_id"]) == ("it\nbroke", "s1")
    assert "ValueError: why" in line["traceback"]


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()])
def test_log__secrets_quoted_by_errors_are_removed(formatter):
    key = f"e2b_{'0f' * 20}"
    failure = ValueError(
        f"X-API-Key: {key}, postgresql://me:hunter2@there/db, sbx_{'x' * 30}, /v1/x?ticket=sbt_{'x' * 43}"
    )
    text = formatter.format(record("it broke", failure=failure))
    assert "there/db" in text
    assert not any(secret in text for secret in (key, "hunter2", "xxxx"))


def test_log__is_written_to_stderr(capsys):
    before = logging.root.handlers[:], logging.root.level
    configure_logging("INFO")
    log.info("here kind=%s", "x")
    logging.root.handlers[:], level = before
    logging.root.setLevel(level)
    said = capsys.readouterr()
    assert "INFO test here kind=x" in said.err
    assert said.out == ""
