from sandbox_server.templates.build_log import BuildLog


def filled(*texts, head=4, tail=4):
    log = BuildLog()
    for text in texts:
        log = log.append(text, head=head, tail=tail)
    return log


def read_all(log):
    """Read it piece by piece, as a follower does."""
    pieces, offset = [], 0
    while (piece := log.read(offset)).text:
        pieces.append((piece.offset, piece.text))
        offset = piece.next_offset
    return pieces


def test_a_short_log_is_told_at_once_and_from_anywhere():
    log = filled("ab", "cdef")
    assert read_all(log) == [(0, "abcdef")]
    assert log.read(3).text == "def"


def test_of_a_long_log_the_beginning_and_the_end_are_kept():
    assert read_all(filled("abcdefghijkl")) == [(0, "abcd"), (8, "ijkl")]


def test_it_makes_no_difference_in_what_portions_it_was_said():
    assert filled("abcdefghijkl") == filled("ab", "cdefg", "h", "ijkl")


def test_who_asks_for_what_was_left_out_gets_what_comes_after_it():
    piece = filled("abcdefghijkl").read(6)
    assert (piece.offset, piece.text, piece.next_offset) == (8, "ijkl", 12)


def test_who_has_read_all_gets_what_is_said_since():
    log = filled("abcdef")
    said = log.append("gh", head=4, tail=4).read(log.size)
    assert (said.offset, said.text) == (6, "gh")


def test_past_the_end_there_is_nothing_yet():
    for log in (BuildLog(), filled("abcdef"), filled("abcdefghijkl")):
        piece = log.read(99)
        assert (piece.offset, piece.text, piece.next_offset) == (log.size, "", log.size)
