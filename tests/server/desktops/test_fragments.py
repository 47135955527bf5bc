import random
from itertools import pairwise

import pytest

from sandbox_server.desktops.fragments import (
    InvalidRecording,
    complete_head,
    cut,
    read_timescale,
)
from tests.server.desktops.films import duration_of, make_film

SECONDS = 24


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    return make_film(tmp_path_factory.mktemp("films") / "film.mp4", seconds=SECONDS)


def copied(film, positions):
    """Cut a film that grows, as it is at each of these positions."""
    offset, head, parts = 0, b"", []
    for position in positions:
        piece = cut(film[offset:position])
        offset += piece.consumed
        head += piece.head
        parts += piece.parts
    return head, parts


def test_cut__parts_begin_at_key_frames_and_follow_one_another(film):
    piece = cut(film)
    seconds = read_timescale(piece.head)
    assert [part.is_key for part in piece.parts] == [True] * len(piece.parts)
    assert [part.begins / seconds for part in piece.parts] == [0, 10, 20]
    assert all(a.begins + a.lasts == b.begins for a, b in pairwise(piece.parts))
    assert sum(part.lasts for part in piece.parts) / seconds == SECONDS


@pytest.mark.parametrize("seed", range(3))
def test_cut__a_file_that_grows_gives_the_same_bytes(film, seed):
    chosen = random.Random(seed)
    positions = sorted(chosen.choices(range(len(film)), k=20))
    head, parts = copied(film, [*positions, len(film)])
    whole = cut(film)
    assert head == whole.head
    assert b"".join(each.content for each in parts) == b"".join(
        each.content for each in whole.parts
    )


def test_complete_head__every_copy_plays_and_tells_its_length(film, tmp_path):
    for share in (0.3, 0.6, 1):
        head, parts = copied(film, [int(len(film) * share)])
        scale = read_timescale(head)
        content = complete_head(head, scale, parts) + b"".join(each.content for each in parts)
        (tmp_path / "copy.mp4").write_bytes(content)
        lasts = sum(each.lasts for each in parts) / scale
        assert duration_of(tmp_path / "copy.mp4") == pytest.approx(lasts, abs=0.05)


@pytest.mark.parametrize("seed", range(200))
def test_cut__damaged_files_are_refused_or_cut(film, seed):
    chosen = random.Random(seed)
    damaged = bytearray(film[: chosen.randrange(len(film))])
    for _ in range(chosen.randrange(1, 30)):
        if damaged:
            damaged[chosen.randrange(min(len(damaged), 3000))] = chosen.randrange(256)
    try:
        piece = cut(bytes(damaged))
        if piece.head:
            complete_head(piece.head, read_timescale(piece.head), piece.parts)
    except InvalidRecording:
        pass


def test_cut__a_file_of_something_else_is_refused():
    for content in (b"\0" * 64, b"\xff" * 64, b"not a film at all, not at all"):
        with pytest.raises(InvalidRecording):
            cut(content)
    assert cut(b"").consumed == 0
