from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sandbox_server.commands.excerpt import excerpt
from sandbox_server.log.records import Record, RecordType

AT = datetime(2026, 1, 2, tzinfo=UTC)
same_examples = settings(derandomize=True, database=None, deadline=None)


def piece(offset, content):
    return record("stdout", offset, content=content)


def gap(offset, size):
    return record("gap", offset, data={"stream": "stdout", "size": size, "reason": "It was."})


def record(kind, offset, **fields):
    return Record(
        seq=1, command_id="c", sandbox_id="s", type=RecordType(kind), offset=offset, at=AT, **fields
    )


def told(found):
    return [(one.offset, one.content or one.data["size"]) for one in found.records]


LOG = [piece(0, b"head"), gap(4, 6), piece(10, "tä€il".encode())]


@pytest.mark.parametrize(
    ("offset", "limit", "expected", "next_offset"),
    [
        (0, 100, [(0, b"head"), (4, 6), (10, "tä€il".encode())], 18),
        (2, 1, [(2, b"a")], 3),
        (2, 2, [(2, b"ad")], 4),
        (2, 3, [(2, b"ad"), (4, 6), (10, b"t")], 11),
        (7, 2, [(7, 3), (10, b"t")], 11),
        (11, 1, [(11, b"\xc3")], 12),
        (11, 4, [(11, "ä".encode())], 13),
        (18, 5, [], 18),
        (30, 5, [], 30),
    ],
)
def test_excerpt__begins_at_the_offset_and_ends_between_characters(
    offset, limit, expected, next_offset
):
    log = [one for one in LOG if one.offset >= offset or offset < ends_of(one)]
    found = excerpt(log, offset=offset, limit=limit)
    assert (told(found), found.next_offset) == (expected, next_offset)


def ends_of(one):
    return one.offset + (len(one.content) or one.data["size"])


def test_excerpt__a_gap_of_unknown_size_uses_no_bytes():
    found = excerpt([piece(0, b"a"), gap(1, None), piece(1, b"b")], offset=0, limit=10)
    assert (told(found), found.next_offset) == ([(0, b"a"), (1, None), (1, b"b")], 2)


@given(st.lists(st.binary(min_size=1, max_size=9)), st.integers(min_value=1, max_value=7))
@same_examples
def test_excerpt__all_parts_together_are_the_stream(pieces, limit):
    log, size = [], 0
    for content in pieces:
        log.append(piece(size, content))
        size += len(content)
    read, offset = b"", 0
    while offset < size:
        found = excerpt([one for one in log if ends_of(one) > offset], offset=offset, limit=limit)
        assert found.next_offset > offset
        assert 0 < sum(len(one.content) for one in found.records) <= limit
        read += b"".join(one.content for one in found.records)
        offset = found.next_offset
    assert read == b"".join(pieces)
