"""What is kept of a command's output, whatever it writes and however it is stored."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.streams.bounds import LARGEST_PIECE, ROW_COST, SMALLEST_BOUND, unfinished
from sandbox_server.streams.command_log import OUTPUTS, CommandLog, StoredRecord
from sandbox_server.streams.records import RecordType

BOUND = SMALLEST_BOUND
STDOUT, STDERR = OUTPUTS
TEXT = "aé€😀\n"


@dataclass
class Table:
    """The rows of one command, as the statements leave them; its tenant's other logs take numbers too."""

    log: CommandLog
    rows: dict[int, StoredRecord] = field(default_factory=dict)
    contents: dict[int, bytes] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    seq: int = 0

    def store(self, *, most=2**20):
        batch = self.log.take(most=most)
        if batch is None:
            return False
        assert batch.last_seq == max(self.rows, default=0) or not self.rows
        for fallen in batch.fallen.values():
            for row in fallen.rows:
                was = self.rows.pop(row.seq)
                self.contents.pop(row.seq, None)
                assert was.offset == row.offset
            gap = fallen.gap
            data = {"stream": was.data.get("stream", was.type), "size": gap.end - gap.offset}
            self.rows[gap.seq] = StoredRecord(gap.seq, RecordType.GAP, gap.offset, 0, data)
        self.seq += 7
        for piece in batch.records:
            self.seq += 1
            length = len(piece.content)
            self.rows[self.seq] = StoredRecord(
                self.seq, piece.type, piece.offset, length, piece.data
            )
            self.contents[self.seq] = bytes(piece.content)
        self.sizes = dict(batch.sizes)
        self.log.settle(batch, self.seq)
        return True

    def store_all(self):
        while self.store():
            pass

    def restart(self):
        """Go on with another log, as another server does."""
        self.log = CommandLog(bound=BOUND)
        self.log.restore(self.rows[seq] for seq in sorted(self.rows))

    def of(self, stream):
        """List the rows of a stream with their ends, in order."""
        for seq in sorted(self.rows):
            row = self.rows[seq]
            if row.type is stream:
                yield row, row.offset + row.length
            elif row.type is RecordType.GAP and row.data.get("stream") == stream:
                yield row, row.offset + row.data["size"]


def check(table, written, *, complete):
    for stream, content in written.items():
        position, kept, cost = 0, 0, 0
        for row, end in table.of(stream):
            assert row.offset == position
            position = end
            cost += ROW_COST
            if row.type is stream:
                assert row.length <= LARGEST_PIECE
                assert table.contents[row.seq] == content[row.offset : end]
                kept += row.length
                cost += row.length
        if complete:
            assert position == len(content)
        else:
            assert len(content) - 3 <= position <= len(content)
        assert cost <= BOUND + 2 * ROW_COST
        if table.sizes:
            assert table.sizes[f"{stream}_size"] == position
            assert table.sizes[f"{stream}_cut"] == position - kept


chunks = st.one_of(
    st.binary(max_size=30),
    st.text(TEXT, max_size=30).map(str.encode),
    st.integers(1, 2 * BOUND).map(lambda size: (b"0123456789abcde\n" * (size // 16 + 1))[:size]),
)
acts = st.one_of(
    st.tuples(st.sampled_from(OUTPUTS), chunks),
    st.tuples(st.just("store"), st.sampled_from([1, 5000, 2**20])),
    st.just(("restart", None)),
)


@given(st.lists(acts, max_size=40))
def test_what_is_stored_is_what_was_written_with_every_gap_told_and_no_more_than_the_bound(done):
    table = Table(CommandLog(bound=BOUND))
    written = {STDOUT: b"", STDERR: b""}
    for act, what in done:
        if act == "store":
            table.store(most=what)
        elif act == "restart":
            table.store_all()
            # What is held back is what another server never gets.
            written = {
                stream: content[: max((end for _, end in table.of(stream)), default=0)]
                for stream, content in written.items()
            }
            table.restart()
        else:
            written[act] += what
            table.log.receive(act, what)
    table.store_all()
    check(table, written, complete=False)
    table.log.note(RecordType.EXIT, {})
    table.store_all()
    check(table, written, complete=True)
    assert table.rows[max(table.rows)].type is RecordType.EXIT
    assert table.log.weight == 0


@given(st.text(TEXT, max_size=300), st.lists(st.integers(1, 9), min_size=1, max_size=300))
def test_text_is_cut_where_characters_are(text, parts):
    table = Table(CommandLog(bound=BOUND))
    content = text.encode()
    for size in parts:
        table.log.receive(STDOUT, content[:size])
        table.log.receive(STDERR, b"!")
        content = content[size:]
        table.store()
    for stored in table.contents.values():
        stored.decode()


def test_text_without_end_is_cut_where_characters_are():
    table = Table(CommandLog(bound=BOUND))
    table.log.receive(STDOUT, b"." + "€".encode() * LARGEST_PIECE)
    table.store_all()
    assert len(table.contents) > 1
    for stored in table.contents.values():
        stored.decode()


def test_the_beginning_stays_and_the_end_goes_on():
    table = Table(CommandLog(bound=BOUND))
    written = b""
    for number in range(3000):
        line = b"%d %s\n" % (number, b"x" * 500)
        written += line
        table.log.receive(STDOUT, line)
        if number % 10 == 0:
            table.store_all()
    table.store_all()
    rows = list(table.of(STDOUT))
    gaps = [row for row, _ in rows if row.type is RecordType.GAP]
    assert len(gaps) == 1
    assert gaps[0].offset > BOUND // 4
    assert len(written) - (gaps[0].offset + gaps[0].data["size"]) > BOUND // 4
    check(table, {STDOUT: written}, complete=False)


def test_a_flood_that_cannot_be_stored_takes_no_more_memory_than_is_kept():
    log = CommandLog(bound=BOUND)
    for _ in range(1000):
        log.receive(STDOUT, b"x" * LARGEST_PIECE)
        log.receive(STDERR, b"x")
    assert log.weight <= 2 * BOUND


def test_single_bytes_are_not_kept_by_the_million():
    table = Table(CommandLog(bound=BOUND))
    for _ in range(5000):
        table.log.receive(STDOUT, b"x")
        table.store()
    assert len(table.rows) <= BOUND // ROW_COST + 2


def test_the_order_in_which_outputs_wrote_is_kept():
    table = Table(CommandLog(bound=BOUND))
    for number in range(10):
        table.log.receive(STDOUT if number % 2 else STDERR, b"%d" % number)
    table.store_all()
    assert b"".join(table.contents[seq] for seq in sorted(table.contents)) == b"0123456789"


def test_an_unfinished_character_is_told_from_bytes_that_are_no_text():
    assert [unfinished("€".encode()[:size]) for size in range(4)] == [0, 1, 2, 0]
    assert unfinished(b"\xff") == unfinished(b"\x80\x80\x80") == unfinished(b"\xc0") == 0
    assert unfinished("😀".encode()[:3]) == 3
