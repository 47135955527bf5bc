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


def test_transcript__a_gap_of_unknown_size_is_reported():
    told = serialize(record("gap", offset=5, reason="The server was away."))
    assert told == {
        "type": "gap",
        "stream": None,
        "offset": 5,
        "size": None,
        "reason": "The server was away.",
        "at": "2026-01-02T03:04:05Z",
    }


def test_transcript__joins_pieces_into_text_with_whole_characters():
    euro = "€".encode()
    told = transcript(
        record("stdout", content=euro[:1]),
        record("stderr", content=b"other"),
        record("stdout", offset=1, content=euro[1:] + b"\xff"),
    )
    assert (told.text, told.cut) == ("€\N{REPLACEMENT CHARACTER}", None)


def test_transcript__a_known_gap_is_a_marker_line():
    told = transcript(
        record("stdout", content=b"head"),
        record("gap", offset=4, stream="stdout", size=10, reason="It was too much."),
        record("stdout", offset=14, content=b"tail"),
    )
    assert told.text == "head\n[10 bytes are missing here]\ntail"
    assert told.cut == Cut(4, 10)


@pytest.mark.parametrize(("stream", "missing"), [("stdout", True), ("stderr", False)])
def test_transcript__a_possible_gap_is_reported_beside_the_text(stream, missing):
    told = transcript(
        record("stdout", content=b"before "),
        record("gap", offset=7, stream="stdout", size=None, reason="The server was away."),
        record("stdout", offset=7, content=b"after"),
        stream=stream,
    )
    assert told.text == ("before after" if missing else "")
    assert told.cut == (Cut(7, None) if missing else None)


def test_transcript__a_gap_at_the_end_is_reported():
    told = transcript(record("stdout", content=b"all there was"), size=100)
    assert told.text == "all there was\n[87 bytes are missing here]\n"
    assert told.cut == Cut(13, 87)
