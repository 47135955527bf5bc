"""The stream of a command's output, from any position and across reconnects."""

import base64
import json
import random

import pytest

from sandbox_server.commands.output_source import CommandOutputSource
from sandbox_server.db.models import Command, CommandOutput
from sandbox_server.log.output_repository import LARGEST_PART
from tests.server.commands.command_rows import record_command
from tests.server.support.api_fixtures import find_or_make
from tests.server.support.rows import add_sandbox


@pytest.fixture
async def recorded_command(sessions):
    async with sessions.begin() as session:
        tenant_id = await find_or_make(session, "default")
    sandbox = await add_sandbox(sessions, tenant_id)
    return await record_command(sessions, tenant_id, sandbox.id)


@pytest.fixture
def source(recorded_command):
    return CommandOutputSource(tenant_id="t", command_id=recorded_command.command_id)


@pytest.fixture
def read(sessions, source):
    """Read the page after a number; returns the page and its decoded items."""

    async def read(after=0, *, limit=100):
        page = await source.read(sessions, after=after, limit=limit)
        return page, [json.loads(item.data) for item in page.items]

    return read


def bytes_of(told):
    return base64.b64decode(told["base64"]) if "base64" in told else told["text"].encode()


async def test_output_source__both_streams_are_returned_in_written_order(recorded_command, read):
    await recorded_command.add("started", pid=7)
    await recorded_command.write("stdout", b"one\n")
    await recorded_command.write("stderr", b"two\n")
    await recorded_command.write("stdout", "drei ü\n".encode())
    await recorded_command.end(exit_code=3)
    page, told = await read()
    assert all(each.pop("at").endswith("Z") for each in told)
    assert told == [
        {"type": "started", "command_id": recorded_command.command_id, "pid": 7},
        {"type": "stdout", "offset": 0, "text": "one\n"},
        {"type": "stderr", "offset": 0, "text": "two\n"},
        {"type": "stdout", "offset": 4, "text": "drei ü\n"},
        {"type": "exit", "state": "exited", "exit_code": 3, "reason": None},
    ]
    assert [item.id for item in page.items] == [2, 4, 6, 8, 10]
    assert (page.position, page.more, page.over) == (10, False, True)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"\0\x80", b"\xc3"], ids=["none", "nul", "half"])
async def test_output_source__binary_output_is_base64(recorded_command, read, content):
    await recorded_command.write("stdout", content)
    _, [told] = await read()
    assert "text" not in told
    assert bytes_of(told) == content


async def test_output_source__is_over_after_the_exit_record(recorded_command, read):
    page, _ = await read()
    assert (page.items, page.position, page.over) == ((), 0, False)
    await recorded_command.end()
    page, _ = await read()
    assert page.over
    page, told = await read(page.position)
    assert (told, page.over) == ([], True)


async def test_output_source__a_removed_command_is_over(sessions, recorded_command, read):
    await recorded_command.write("stdout", b"gone soon")
    async with sessions.begin() as session:
        await session.delete(await session.get_one(Command, recorded_command.command_id))
    page, told = await read()
    assert (told, page.over) == ([], True)


async def test_output_source__a_page_is_limited_in_items_and_bytes(recorded_command, read):
    piece = b"x" * (LARGEST_PART // 4)
    for _ in range(6):
        await recorded_command.write("stdout", piece)
    page, told = await read()
    assert (len(told), page.more) == (4, True)
    rest, told = await read(page.position)
    assert (len(told), rest.more) == (2, False)
    page, told = await read(limit=3)
    assert (len(told), page.more) == (3, True)


async def test_output_source__the_tail_is_the_last_items(sessions, recorded_command, source, read):
    for number in range(5):
        await recorded_command.write("stdout", b"%d" % number)
    after = await source.find_tail(sessions, count=2)
    assert [bytes_of(told) for told in (await read(after))[1]] == [b"3", b"4"]
    assert await source.find_tail(sessions, count=50) == 0


async def test_output_source__a_gap_is_sent_once_to_readers_before_it(recorded_command, read):
    rows = [await recorded_command.write("stdout", b"%d" % number) for number in range(6)]
    await recorded_command.drop("stdout", rows[1:3])
    await recorded_command.drop("stdout", rows[3:4])
    _, told = await read()
    assert [(each["type"], each["offset"]) for each in told] == [
        ("stdout", 0),
        ("gap", 1),
        ("stdout", 4),
        ("stdout", 5),
    ]
    assert (told[1]["stream"], told[1]["size"]) == ("stdout", 3)
    assert [each["type"] for each in (await read(rows[2].seq))[1]] == ["gap", "stdout", "stdout"]
    assert [each["type"] for each in (await read(rows[3].seq))[1]] == ["stdout", "stdout"]


async def test_output_source__equal_sources_are_the_same_stream(recorded_command, source):
    same = CommandOutputSource(tenant_id="t", command_id=recorded_command.command_id)
    assert (same, hash(same)) == (source, hash(source))
    assert source.topic == f"command/{recorded_command.command_id}"


class Reader:
    """Collects received items and the position."""

    def __init__(self):
        self.last = 0
        self.over = False
        self.got: dict[str, dict[int, int]] = {"stdout": {}, "stderr": {}}
        self.gaps: dict[str, set[int]] = {"stdout": set(), "stderr": set()}

    def take(self, page):
        for item in page.items:
            assert item.id > self.last
            self.last = item.id
            self._note(json.loads(item.data))
        self.over = page.over

    def _note(self, told):
        if told["type"] == "gap":
            self.gaps[told["stream"]].update(range(told["offset"], told["offset"] + told["size"]))
        elif told["type"] in self.got:
            got = self.got[told["type"]]
            for position, byte in enumerate(bytes_of(told), start=told["offset"]):
                assert position not in got
                got[position] = byte


@pytest.mark.parametrize("seed", range(5))
async def test_output_source__a_reader_receives_every_byte_once_or_a_gap_across_reconnects(
    sessions, recorded_command, source, seed
):
    chance = random.Random(seed)
    readers = [Reader() for _ in range(4)]
    written = {"stdout": b"", "stderr": b""}
    kept: dict[str, list[CommandOutput]] = {"stdout": [], "stderr": []}
    for _ in range(40):
        stream = chance.choice(["stdout", "stdout", "stderr"])
        content = chance.choice([chance.randbytes(chance.randint(1, 9)), "ü€💥\n".encode()])
        kept[stream].append(await recorded_command.write(stream, content))
        written[stream] += content
        if len(kept[stream]) > 8 and chance.random() < 0.5:
            fallen = chance.randint(1, 5)
            await recorded_command.drop(stream, kept[stream][2 : 2 + fallen])
            del kept[stream][2 : 2 + fallen]
        for reader in readers:
            if chance.random() < 0.3:
                reader.take(
                    await source.read(sessions, after=reader.last, limit=chance.randint(1, 9))
                )
    await recorded_command.end()
    for reader in readers:
        while not reader.over:
            reader.take(await source.read(sessions, after=reader.last, limit=chance.randint(1, 9)))
        for stream, content in written.items():
            got = reader.got[stream]
            assert all(content[position] == byte for position, byte in got.items())
            assert got.keys() | reader.gaps[stream] == set(range(len(content)))
