from datetime import UTC, datetime

import pytest

from sandbox_server.log.records import Record, RecordType
from sandbox_server.log.serialize import Cut, serialize, transcribe

AT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def record(kind, *, offset=0, content=b"", **data):
    return Record(
        seq=1,
        command_id="c",
        sandbox_id="s",
        type=RecordType(kind),
        offset=offset,
        content=content,
        data=data,
        at=AT,
    )


def transcript(*records, size=None, stream="stdout"):
    written = [one.offset + len(one.content) for one in records if one.type == stream]
    end = max(written, default=0) if size is None else size
    return transcribe(records, RecordType(stream), size=end)


def test_a_gap_of_which_nobody_knows_the_size_says_so():
    told = serialize(record("gap", offset=5, reason="The server was away."))
    assert told == {
        "type": "gap",
        "stream": None,
        "offset": 5,
        "size": None,
        "reason": "The server was away.",
        "at": "2026-01-02T03:04:05Z",
    }


def test_pieces_of_one_stream_become_one_text_whose_characters_are_whole():
    euro = "€".encode()
    told = transcript(
        record("stdout", content=euro[:1]),
        record("stderr", content=b"other"),
        record("stdout", offset=1, content=euro[1:] + b"\xff"),
    )
    assert (told.text, told.cut) == ("€\N{REPLACEMENT CHARACTER}", None)


def test_what_is_missing_in_the_middle_is_a_line_of_the_text():
    told = transcript(
        record("stdout", content=b"head"),
        record("gap", offset=4, stream="stdout", size=10, reason="It was too much."),
        record("stdout", offset=14, content=b"tail"),
    )
    assert told.text == "head\n[10 bytes are missing here]\ntail"
    assert told.cut == Cut(4, 10)


@pytest.mark.parametrize(("stream", "missing"), [("stdout", True), ("stderr", False)])
def test_what_may_be_missing_is_said_of_the_stream_that_it_is_about_beside_its_text(
    stream, missing
):
    told = transcript(
        record("stdout", content=b"before "),
        record("gap", offset=7, stream="stdout", size=None, reason="The server was away."),
        record("stdout", offset=7, content=b"after"),
        stream=stream,
    )
    assert told.text == ("before after" if missing else "")
    assert told.cut == (Cut(7, None) if missing else None)


def test_what_is_missing_at_the_end_is_said_too():
    told = transcript(record("stdout", content=b"all there was"), size=100)
    assert told.text == "all there was\n[87 bytes are missing here]\n"
    assert told.cut == Cut(13, 87)
