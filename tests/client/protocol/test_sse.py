from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sandbox_client.protocol.sse import EventParser, ServerSentEvent

TEXTS = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]))
EVENTS = st.lists(
    st.tuples(
        st.lists(TEXTS, min_size=1, max_size=3),
        st.none() | TEXTS,
        st.none() | TEXTS.filter(lambda text: not text.startswith(" ")),
    )
)
# Each of them, and mixed where no two make another.
ENDS = st.sampled_from([["\n"], ["\r"], ["\r\n"], ["\n", "\r\n"]]).map(st.sampled_from)


def parse(*chunks, **options):
    parser = EventParser(**options)
    return [event for chunk in chunks for event in parser.feed(chunk)]


def chopped(content, cuts):
    places = sorted({cut % (len(content) + 1) for cut in cuts} | {0, len(content)})
    return [content[begin:end] for begin, end in pairwise(places)]


@given(EVENTS, ENDS, st.data(), st.lists(st.integers(0, 10_000)))
def test_sse__events_do_not_depend_on_chunking(events, ends, data, cuts):
    lines, expected, last_id = [], [], ""
    for texts, number, name in events:
        lines += [f"data: {text}" for text in texts] + [": a comment"]
        lines += [] if number is None else [f"id: {number}"]
        lines += [] if name is None else [f"event: {name}"]
        lines += [""]
        last_id = last_id if number is None else number
        expected.append(ServerSentEvent("\n".join(texts), last_id, name or "message"))
    content = "".join(line + data.draw(ends) for line in lines).encode()
    assert parse(*chopped(content, cuts)) == expected


@given(st.binary())
def test_sse__arbitrary_bytes_are_parsed(content):
    parse(content)
    assert parse(content) == parse(*(bytes([byte]) for byte in content))


def test_sse__character_split_across_chunks():
    content = "data: ü€😀\n\n".encode()
    for place in range(len(content)):
        [event] = parse(content[:place], content[place:])
        assert event.data == "ü€😀"


def test_sse__incomplete_event_is_dropped():
    assert parse(b"id: 7\ndata: half") == []
    assert parse(b"id: 7\ndata: half\n") == []


def test_sse__comments_and_heartbeats_are_ignored():
    assert parse(b": this stream is open\n\n:\n\nretry: 1500\n\n") == []


def test_sse__id_applies_once_its_event_is_complete():
    parser = EventParser(last_id="3")
    assert [event.id for event in parser.feed(b"data: a\n\nid: 4\ndata: b\n\ndata: c\n\n")] == [
        "3",
        "4",
        "4",
    ]
    assert list(parser.feed(b"id: 5\ndata: half")) == []
    assert parser.last_id == "4"


def test_sse__id_with_nul_is_ignored():
    [event] = parse(b"id: 1\0\ndata: a\n\n", last_id="0")
    assert event.id == "0"


def test_sse__retry_sets_the_reconnection_delay():
    parser = EventParser()
    list(parser.feed(b"retry: 1500\nretry: soon\n\n"))
    assert parser.retry_s == 1.5


def test_sse__one_space_after_the_colon_is_stripped():
    assert parse(b"data:  a\n\n")[0].data == " a"
    assert parse(b"data:a\n\n")[0].data == "a"
    assert parse(b"data\n\n")[0].data == ""


def test_sse__byte_order_mark_is_stripped():
    assert parse(b"\xef\xbb", b"\xbfdata: a\n\n")[0].data == "a"
