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


def test_build_log__a_short_one_is_read_completely_from_any_position():
    log = filled("ab", "cdef")
    assert read_all(log) == [(0, "abcdef")]
    assert log.read(3).text == "def"


def test_build_log__of_a_long_one_beginning_and_end_are_kept():
    assert read_all(filled("abcdefghijkl")) == [(0, "abcd"), (8, "ijkl")]


def test_build_log__the_size_of_the_portions_does_not_matter():
    assert filled("abcdefghijkl") == filled("ab", "cdefg", "h", "ijkl")


def test_build_log__a_position_in_the_omitted_part_continues_after_it():
    piece = filled("abcdefghijkl").read(6)
    assert (piece.offset, piece.text, piece.next_offset) == (8, "ijkl", 12)


def test_build_log__a_reader_at_the_end_gets_later_lines():
    log = filled("abcdef")
    said = log.append("gh", head=4, tail=4).read(log.size)
    assert (said.offset, said.text) == (6, "gh")


def test_build_log__past_the_end_there_is_nothing():
    for log in (BuildLog(), filled("abcdef"), filled("abcdefghijkl")):
        piece = log.read(99)
        assert (piece.offset, piece.text, piece.next_offset) == (log.size, "", log.size)
