"""Agent output is split into lines, independent of its records and of the reader's position."""

import json
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.agents.line_assembler import LONGEST_LINE, Gap, Line, LineAssembler, lines_of
from sandbox_server.agents.source import to_item
from sandbox_server.log.records import Record, RecordType

AT = datetime(2026, 1, 1, tzinfo=UTC)


def record(type_, offset, content=b"", **data):
    return Record(
        seq=1,
        command_id="c",
        sandbox_id="s",
        type=type_,
        offset=offset,
        content=content,
        data=data,
        at=AT,
    )


def out(offset, content):
    return record(RecordType.STDOUT, offset, content)


def gap(offset, size):
    return record(RecordType.GAP, offset, stream=None if size is None else "stdout", size=size)


def read(records, *, after=0):
    lines = LineAssembler(after=after)
    return [*lines_of(records, lines), *lines.finish(AT)]


def data_of(content):
    item = to_item(Line(len(content), content, AT), run_id="run")
    assert item is not None
    return item.data


def told_of(content):
    return json.loads(data_of(content))


def message(number):
    return json.dumps({"type": "message", "message": number}).encode() + b"\n"


@st.composite
def outputs(draw):
    """Lines, and positions at which to split them into records."""
    content = b"".join(draw(st.lists(st.binary(max_size=6).map(lambda b: b + b"\n"), max_size=8)))
    content += draw(st.binary(max_size=3))
    cuts = sorted(draw(st.lists(st.integers(0, len(content)), max_size=6)))
    edges = [0, *cuts, len(content)]
    pieces = [out(a, content[a:b]) for a, b in pairwise(edges)]
    return content, pieces


@given(outputs())
def test_agent_lines__are_independent_of_the_records_they_are_stored_in(given):
    content, pieces = given
    said = read(pieces)
    assert b"".join(line.content for line in said) == content
    assert all(line.content.count(b"\n") == 1 for line in said[:-1])


@given(outputs())
def test_agent_lines__a_reader_resumes_after_any_line(given):
    _, pieces = given
    said = read(pieces)
    for index, line in enumerate(said):
        left = [one for one in pieces if one.offset + len(one.content) > line.end]
        assert read(left, after=line.number) == said[index + 1 :]


def test_agent_lines__a_line_with_a_gap_in_it_becomes_a_gap():
    said = read(
        [
            out(0, message(1) + b'{"type"'),
            gap(len(message(1)) + 7, 100),
            out(154 - 6, b'": 2}\n' + message(3)),
        ]
    )
    assert [type(one) for one in said] == [Line, Gap, Line]
    assert said[1].size == said[1].end - len(message(1))
    assert isinstance(said[2], Line)
    assert json.loads(said[2].content)["message"] == 3
    assert [one.number for one in said] == sorted({one.number for one in said})


def test_agent_lines__complete_lines_after_a_gap_of_unknown_size_are_kept():
    end = len(message(1))
    said = read([out(0, message(1)), gap(0, None), out(end, message(2))])
    assert [type(one) for one in said] == [Line, Gap, Line]
    assert (said[1].number, said[1].size) == (2 * end + 1, None)


def test_agent_lines__a_gap_is_not_repeated_on_resume():
    end = len(message(1))
    rest = [gap(0, None), out(end, message(2))]
    assert [type(one) for one in read(rest, after=2 * end)] == [Gap, Line]
    assert [type(one) for one in read(rest, after=2 * end + 1)] == [Line]


def test_agent_lines__an_endless_line_is_split_while_it_grows():
    lines = LineAssembler(after=0)
    said = list(lines_of([out(0, b"x" * (LONGEST_LINE + 1))], lines))
    assert [one.number for one in said] == [2 * (LONGEST_LINE + 1)]


@pytest.mark.parametrize(
    "content",
    [
        b"no JSON\n",
        b'["type"]\n',
        b'{"type": "exit"}\n',
        b'{"type": "message", "message": NaN}\n',
        b'{"type": ["message"]}\n',
        b"[" * 100_000 + b"\n",
        b"\xff\xfe\n",
    ],
    ids=["text", "list", "unknown", "nan", "no-name", "deep", "bytes"],
)
def test_agent_events__output_that_is_not_a_message_becomes_bounded_text(content):
    told = told_of(content)
    assert told["type"] == "text"
    assert len(told["text"]) < 5000


@pytest.mark.parametrize("text", ['"\\ud800"', '"a\\u0000b"', '"a\\r\\nb\\u2028c"'])
def test_agent_events__no_output_can_end_an_sse_event(text):
    content = b'{"type": "message", "message": ' + text.encode() + b"}\r\n"
    data = data_of(content)
    assert not {ord("\n"), ord("\r")} & set(data)
    assert json.loads(data)["type"] == "message"


def test_agent_events__the_result_is_sent_once_the_run_has_ended():
    assert to_item(Line(20, b'{"type": "result"}\n', AT), run_id="run") is None
