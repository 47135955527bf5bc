from sandbox_engine.commands.spool import Output, Stream
from sandbox_engine.commands.transcript import Transcript


def test_transcript__lines_are_complete_wherever_the_output_was_cut():
    told = []
    transcript = Transcript(lambda stream, line: told.append((stream, line)))
    for stream, data in (
        (Stream.STDOUT, b"gr\xc3"),
        (Stream.STDERR, b"warn"),
        (Stream.STDOUT, b"\xbcn\r\nlast"),
        (Stream.STDERR, b"ing\n\n"),
    ):
        transcript.add(Output(stream, data))
    assert told == [(Stream.STDOUT, "grün"), (Stream.STDERR, "warning"), (Stream.STDERR, "")]
    transcript.close()
    assert told[3:] == [(Stream.STDOUT, "last")]
    assert transcript.tail == "grün\nwarning\n\nlast"


def test_transcript__only_the_last_lines_are_kept():
    transcript = Transcript()
    for number in range(10_000):
        transcript.add(Output(Stream.STDOUT, f"line {number}\n".encode()))
    lines = transcript.tail.splitlines()
    assert lines == [f"line {number}" for number in range(10_000 - len(lines), 10_000)]
    assert 100 < len(lines) < 1_000


def test_transcript__endless_line_does_not_fill_memory():
    told = []
    transcript = Transcript(lambda _, line: told.append(len(line)))
    for _ in range(1_000):
        transcript.add(Output(Stream.STDOUT, b"x" * 1_000))
    assert sum(told) > 900_000
    assert max(told) < 100_000
