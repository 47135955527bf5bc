"""Where frames end, whatever pieces they come in."""

import random

import pytest
from websockets.frames import Frame, Opcode

from sandbox_http.frames import Frames, close_frame


def frame(opcode, size, *, mask=False):
    return Frame(opcode, b"x" * size).serialize(mask=mask)


def pieces_of(data, seed):
    chance, at = random.Random(seed), 0
    while at < len(data):
        step = chance.choice([1, 2, 3, 7, 1000])
        yield data[at : at + step]
        at += step


@pytest.mark.parametrize("seed", range(20))
def test_websocket_frames__a_close_frame_can_follow_only_a_complete_frame(seed):
    sizes = [0, 1, 125, 126, 300, 65_535, 65_536]
    frames = [frame(Opcode.BINARY, size, mask=bool(seed % 2)) for size in sizes]
    ends, at = {0}, 0
    for each in frames:
        at += len(each)
        ends.add(at)
    followed, sent = Frames(), 0
    for piece in pieces_of(b"".join(frames), seed):
        assert followed.may_end is (sent in ends)
        assert followed.take(piece) or len(piece) < 14
        sent += len(piece)
    assert followed.may_end


def test_websocket_frames__control_frames_are_no_messages():
    followed = Frames()
    assert not followed.take(frame(Opcode.PING, 4) + frame(Opcode.PONG, 0))
    assert followed.take(frame(Opcode.PING, 4) + frame(Opcode.TEXT, 3))
    assert followed.take(frame(Opcode.TEXT, 3)[:4])
    assert followed.take(b"x")


def test_websocket_frames__nothing_follows_a_close_frame():
    followed = Frames()
    followed.take(close_frame(1000, ""))
    assert not followed.may_end


def test_websocket_frames__tracking_stops_after_many_tiny_frames():
    followed = Frames()
    assert followed.take(frame(Opcode.TEXT, 0) * 10_000)
    assert not followed.may_end
    assert followed.take(b"anything")


def test_websocket_frames__clients_understand_the_close_frame():
    said = close_frame(4401, "The key does not hold any more.")
    assert said == Frame(Opcode.CLOSE, b"\x11\x31The key does not hold any more.").serialize(
        mask=False
    )
