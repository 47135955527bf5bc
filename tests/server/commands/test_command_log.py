"""Retention of a command's output."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from sandbox_server.commands.command_log import OUTPUTS, CommandLog, StoredRecord
from sandbox_server.commands.output_pieces import ROW_COST
from sandbox_server.commands.rate_limits import TRICKLE
from sandbox_server.commands.retention import LARGEST_PIECE, QUIET_S, SMALLEST_BOUND, unfinished
from sandbox_server.log.records import RecordType

BOUND = SMALLEST_BOUND
STDOUT, STDERR = OUTPUTS
TEXT = "aé€😀\n"
MOST_STORED = 3 * BOUND + 4 * LARGEST_PIECE
"""Maximum bytes stored of one output while no time passes."""


class Clock:
    """A clock that tests advance."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now


@dataclass
class Table:
    """The stored rows of one command. Other logs of the tenant use numbers too."""

    log: CommandLog
    rows: dict[int, StoredRecord] = field(default_factory=dict)
    contents: dict[int, bytes] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    seq: int = 0
    stored: dict[str, int] = field(default_factory=lambda: dict.fromkeys(OUTPUTS, 0))
    """Total bytes that were written per stream."""

    def store(self, *, most=2**20):
        batch = self.log.take(max_bytes=most)
        if batch is None:
            return False
        assert batch.last_seq == max(self.rows, default=0) or not self.rows
        for fallen in batch.evicted.values():
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
            if piece.type in self.stored:
                self.stored[piece.type] += length
        self.sizes = dict(batch.sizes)
        self.log.ack(batch, self.seq)
        return True

    def store_all(self):
        while self.store():
            pass

    def restart(self, clock):
        """Continue with another log, as another server does."""
        self.log = CommandLog(bound=BOUND, clock=clock)
        self.log.restore(self.rows[seq] for seq in sorted(self.rows))

    def of(self, stream):
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
    st.tuples(st.just("wait"), st.sampled_from([0.01, QUIET_S, 10.0])),
)


@given(st.lists(acts, max_size=40))
def test_command_log__stores_what_was_written_within_the_bound_and_records_every_gap(done):
    clock = Clock()
    table = Table(CommandLog(bound=BOUND, clock=clock))
    written = {STDOUT: b"", STDERR: b""}
    restarts = 0
    for act, what in done:
        if act == "store":
            table.store(most=what)
        elif act == "wait":
            clock.now += what
        elif act == "restart":
            restarts += 1
            table.log.release()
            table.store_all()
            # What is held back is what another server never gets.
            written = {
                stream: content[: max((end for _, end in table.of(stream)), default=0)]
                for stream, content in written.items()
            }
            table.restart(clock)
        else:
            written[act] += what
            table.log.receive(act, what)
    table.log.release()
    table.store_all()
    check(table, written, complete=False)
    table.log.note(RecordType.EXIT, {})
    table.store_all()
    check(table, written, complete=True)
    assert table.rows[max(table.rows)].type is RecordType.EXIT
    assert table.log.buffered_bytes == 0
    for stored in table.stored.values():
        assert stored <= (restarts + 1) * MOST_STORED + clock.now * TRICKLE


@given(st.text(TEXT, max_size=300), st.lists(st.integers(1, 9), min_size=1, max_size=300))
def test_command_log__splits_text_between_characters(text, parts):
    table = Table(CommandLog(bound=BOUND))
    content = text.encode()
    for size in parts:
        table.log.receive(STDOUT, content[:size])
        table.log.receive(STDERR, b"!")
        content = content[size:]
        table.store()
    for stored in table.contents.values():
        stored.decode()


def test_command_log__splits_endless_text_between_characters():
    table = Table(CommandLog(bound=BOUND))
    table.log.receive(STDOUT, b"." + "€".encode() * LARGEST_PIECE)
    table.store_all()
    assert len(table.contents) > 1
    for stored in table.contents.values():
        stored.decode()


def test_command_log__keeps_the_head_and_tail_of_a_flood_at_its_end():
    table = Table(CommandLog(bound=BOUND, clock=Clock()))
    written = b""
    for number in range(3000):
        line = b"%d %s\n" % (number, b"x" * 500)
        written += line
        table.log.receive(STDOUT, line)
        if number % 10 == 0:
            table.store_all()
    table.log.note(RecordType.EXIT, {})
    table.store_all()
    gaps = [row for row, _ in table.of(STDOUT) if row.type is RecordType.GAP]
    assert len(gaps) <= 2  # a piece of the midst may be left where there is room for it
    assert gaps[0].offset > BOUND // 4
    assert len(written) - (gaps[-1].offset + gaps[-1].data["size"]) > BOUND // 5
    check(table, {STDOUT: written}, complete=True)


def flooded(clock, *, size=8 * BOUND):
    """Make a table of an output that has used up its allowance."""
    table = Table(CommandLog(bound=BOUND, clock=clock))
    for _ in range(size // 1000):
        table.log.receive(STDOUT, b"x" * 999 + b"\n")
        table.store_all()
    assert table.log.is_held
    return table


def test_command_log__stores_only_a_trickle_while_a_flood_lasts():
    clock = Clock()
    table = flooded(clock)
    before = table.stored[STDOUT]
    assert before <= BOUND
    for _ in range(10_000):
        clock.now += 0.001
        table.log.receive(STDOUT, b"x" * 999 + b"\n")
        table.store_all()
    assert TRICKLE * 8 < table.stored[STDOUT] - before < TRICKLE * 10.5


def test_command_log__stores_the_tail_when_a_flood_pauses():
    clock = Clock()
    table = flooded(clock)
    table.log.receive(STDOUT, b"> ")
    table.store_all()
    assert table.log.seconds_held() <= QUIET_S
    clock.now += QUIET_S
    table.store_all()
    rows = list(table.of(STDOUT))
    assert table.contents[rows[-1][0].seq].endswith(b"> ")
    assert rows[-1][1] - max(end for row, end in rows if row.type is RecordType.GAP) > LARGEST_PIECE
    assert not table.log.is_held


def test_command_log__stores_the_last_bytes_at_each_pause_of_repeated_floods():
    clock = Clock()
    table = flooded(clock)
    for number in range(5):
        for _ in range(BOUND // 1000):
            table.log.receive(STDOUT, b"x" * 999 + b"\n")
        table.log.receive(STDOUT, b"%d> " % number)
        clock.now += QUIET_S
        table.store_all()
        assert table.contents[max(table.contents)].endswith(b"%d> " % number)
    assert table.stored[STDOUT] < MOST_STORED


def test_command_log__bounds_the_writes_of_endless_floods_with_pauses():
    clock = Clock()
    table = flooded(clock)
    for _ in range(1000):
        table.log.receive(STDOUT, b"x" * LARGEST_PIECE)
        clock.now += QUIET_S
        table.store_all()
    assert table.stored[STDOUT] <= MOST_STORED + clock.now * TRICKLE


def test_command_log__stores_a_slow_log_line_by_line():
    clock = Clock()
    table = Table(CommandLog(bound=BOUND, clock=clock))
    for number in range(20_000):
        table.log.receive(STDOUT, b"%099d\n" % number)
        assert table.store()
        clock.now += 0.1
    assert not table.log.is_held


def test_command_log__stores_other_streams_at_once_during_a_flood():
    table = flooded(Clock())
    table.log.receive(STDERR, b"warning\n")
    assert table.store()
    assert table.contents[max(table.contents)] == b"warning\n"


def test_command_log__a_terminal_shows_current_output_during_a_flood():
    log = CommandLog(bound=BOUND * 16, max_held=LARGEST_PIECE, clock=Clock())
    table = Table(log)
    while not log.is_held:
        log.receive(STDOUT, b"x" * 1000)
        table.store_all()
    for _ in range(1000):
        log.receive(STDOUT, b"x" * 1000)
    assert log.buffered_bytes <= 2 * LARGEST_PIECE


def test_command_log__the_tail_of_a_flood_begins_with_a_whole_character():
    clock = Clock()
    table = Table(CommandLog(bound=BOUND, clock=clock))
    for _ in range(6):
        for _ in range(BOUND // 300):
            table.log.receive(STDOUT, "€".encode() * 100)
            table.store_all()
        clock.now += QUIET_S
        table.store_all()
    for stored in table.contents.values():
        stored.decode()


def test_command_log__an_unstored_flood_uses_bounded_memory():
    log = CommandLog(bound=BOUND)
    for _ in range(1000):
        log.receive(STDOUT, b"x" * LARGEST_PIECE)
        log.receive(STDERR, b"x")
    assert log.buffered_bytes <= 2 * BOUND


def test_command_log__limits_the_number_of_single_byte_records():
    table = Table(CommandLog(bound=BOUND))
    for _ in range(5000):
        table.log.receive(STDOUT, b"x")
        table.store()
    table.log.note(RecordType.EXIT, {})
    table.store_all()
    assert len(table.rows) <= BOUND // ROW_COST + 2


def test_command_log__keeps_the_order_of_the_streams():
    table = Table(CommandLog(bound=BOUND))
    for number in range(10):
        table.log.receive(STDOUT if number % 2 else STDERR, b"%d" % number)
    table.store_all()
    assert b"".join(table.contents[seq] for seq in sorted(table.contents)) == b"0123456789"


def test_unfinished__distinguishes_incomplete_characters_from_binary_bytes():
    assert [unfinished("€".encode()[:size]) for size in range(4)] == [0, 1, 2, 0]
    assert unfinished(b"\xff") == unfinished(b"\x80\x80\x80") == unfinished(b"\xc0") == 0
    assert unfinished("😀".encode()[:3]) == 3
