import os

import pytest
from websockets.frames import Opcode

from sandbox_server.browsers.cdp.frames import (
    Control,
    FrameError,
    FrameReader,
    Message,
    Passage,
    Piece,
    build_frame,
)

KEY = b"\x01\x02\x03\x04"


def masked(payload, *, opcode=Opcode.TEXT, is_final=True):
    frame = build_frame(payload, opcode=opcode, masked=True)
    head = frame[: len(frame) - len(payload) - 4]
    first = head[0] if is_final else head[0] & 0x7F
    body = bytes(byte ^ KEY[at % 4] for at, byte in enumerate(payload))
    return bytes((first,)) + head[1:] + KEY + body


def pieces_of(data, *, limit=1000, step=None):
    reader = FrameReader(limit=limit)
    found: list[Piece] = []
    for at in range(0, len(data), step or len(data)):
        found += reader.feed(data[at : at + (step or len(data))])
    return reader, found


@pytest.mark.parametrize("step", [None, 1, 3, 7])
def test_reader__messages_are_complete_wherever_the_stream_is_cut(step):
    sent = [b"", b"short", b"x" * 130, "ä€".encode()]
    data = b"".join(masked(each) for each in sent)
    reader, found = pieces_of(data, step=step)
    assert [piece.payload for piece in found] == sent
    assert b"".join(piece.raw for piece in found) == data
    assert reader.is_between_messages


@pytest.mark.parametrize("step", [None, 1, 5])
def test_reader__fragments_become_one_message_and_control_frames_between_them_come_first(step):
    ping = masked(b"now", opcode=Opcode.PING)
    data = masked(b"one ", is_final=False) + ping + masked(b"two", opcode=Opcode.CONT)
    _, (control, message) = pieces_of(data, step=step)
    assert control == Control(ping, Opcode.PING, b"now")
    assert isinstance(message, Message)
    assert message.payload == b"one two"
    assert message.raw == data.replace(ping, b"")


@pytest.mark.parametrize("step", [None, 1, 100])
def test_reader__a_message_above_the_limit_streams_through(step):
    large, small = masked(os.urandom(5000)), masked(b"after")
    reader, found = pieces_of(large + small, step=step)
    assert all(isinstance(piece, Passage) for piece in found[:-1])
    assert b"".join(piece.raw for piece in found[:-1]) == large
    assert isinstance(found[-1], Message)
    assert found[-1].payload == b"after"
    assert reader.is_between_messages


def test_reader__a_message_of_many_fragments_streams_once_it_exceeds_the_limit():
    first = masked(b"x" * 600, is_final=False)
    more = masked(b"y" * 600, opcode=Opcode.CONT, is_final=False)
    last = masked(b"", opcode=Opcode.CONT)
    reader = FrameReader(limit=1000)
    assert not list(reader.feed(first))
    assert b"".join(piece.raw for piece in reader.feed(more)) == first + more
    assert reader.is_between_frames
    assert not reader.is_between_messages
    assert b"".join(piece.raw for piece in reader.feed(last)) == last
    assert reader.is_between_messages


def test_reader__in_the_middle_of_a_large_frame_nothing_can_be_inserted():
    large = masked(b"x" * 5000)
    reader = FrameReader(limit=1000)
    list(reader.feed(large[:2000]))
    assert not reader.is_between_frames


@pytest.mark.parametrize("data", [b"\x83\x00", masked(b"x" * 130, opcode=Opcode.PING)])
def test_reader__an_invalid_frame_is_refused(data):
    with pytest.raises(FrameError):
        list(FrameReader(limit=1000).feed(data))
