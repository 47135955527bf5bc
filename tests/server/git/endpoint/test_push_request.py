"""The head of a push, byte by byte."""

import asyncio

import pytest

from sandbox_server.git.endpoint.push_report import RefResult, report_push
from sandbox_server.git.endpoint.push_request import (
    MAX_COMMANDS,
    MAX_HEAD,
    PushRequest,
    RefCommand,
    read_push,
)
from sandbox_server.git.pkt_line import FLUSH, MAX_LINE, MalformedPktLine, PktLineReader, pkt_line

OLD, NEW, NONE = "a" * 40, "b" * 40, "0" * 40
CAPABILITIES = "report-status side-band-64k object-format=sha1 agent=git/2.39.5"


def command(old=OLD, new=NEW, ref="refs/heads/task-42", capabilities=CAPABILITIES):
    told = f"\0 {capabilities}" if capabilities else ""
    return pkt_line(f"{old} {new} {ref}{told}".encode())


def read(body, *, part=7, limit=MAX_HEAD):
    """Read a push that arrives in small parts; gives the head and what follows it."""

    async def parts():
        for start in range(0, len(body), part):
            yield body[start : start + part]

    async def both():
        lines = PktLineReader(parts(), limit=limit)
        push = await read_push(lines)
        return push, b"".join([rest async for rest in lines.rest()])

    return asyncio.run(both())


def test_push_request__command_and_pack():
    push, rest = read(command() + FLUSH + b"PACK....")
    assert push.commands == [RefCommand(old=OLD, new=NEW, ref="refs/heads/task-42")]
    assert push.capabilities == frozenset(CAPABILITIES.split())
    assert push.has_pack
    assert rest == b"PACK...."


def test_push_request__only_a_flush_is_a_probe():
    push, rest = read(FLUSH)
    assert push.is_probe
    assert not push.has_pack
    assert rest == b""


def test_push_request__shallow_lines_come_first():
    shallow = pkt_line(f"shallow {OLD}".encode())
    push, rest = read(shallow + shallow + command() + FLUSH + b"PACK")
    assert len(push.commands) == 1
    assert "report-status" in push.capabilities
    assert rest == b"PACK"


def test_push_request__branch_whose_name_contains_pack():
    push, rest = read(command(ref="refs/heads/JDK-PACK") + FLUSH + b"PACK\0\0")
    assert push.commands[0].ref == "refs/heads/JDK-PACK"
    assert rest == b"PACK\0\0"


def test_push_request__deletions_have_no_pack():
    push, _ = read(
        command(new=NONE) + command(ref="refs/heads/b", new=NONE, capabilities="") + FLUSH
    )
    assert [one.is_delete for one in push.commands] == [True, True]
    assert not push.has_pack


def test_push_request__options_are_read_past():
    options = pkt_line(b"ci.skip") + pkt_line(b"x=y") + FLUSH
    push, rest = read(command(capabilities="push-options") + FLUSH + options + b"PACK")
    assert len(push.commands) == 1
    assert rest == b"PACK"


def test_push_request__sha256_ids():
    push, _ = read(command(old="a" * 64, new="b" * 64) + FLUSH)
    assert push.commands[0].new == "b" * 64


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"000",
        b"zzzz",
        b"+00a12345",
        b"0001",
        b"0002",
        b"0003",
        b"00ff",
        pkt_line(b"push-cert\0 report-status") + FLUSH,
        pkt_line(b"hello") + FLUSH,
        command(old="A" * 40) + FLUSH,
        command(ref="main") + FLUSH,
        command(ref="refs/heads/../main") + FLUSH,
        command(ref="refs/heads/a b") + FLUSH,
        command(ref="refs/heads/a\nb") + FLUSH,
        command() + command() + FLUSH,
        command(),
        command(capabilities="push-options") + FLUSH + pkt_line(b"x") * 40 + FLUSH,
        b"".join(command(ref=f"refs/heads/{n}") for n in range(MAX_COMMANDS + 1)) + FLUSH,
        pkt_line(f"shallow {OLD}".encode()) * 6000 + command() + FLUSH,
    ],
)
def test_push_request__malformed(body):
    with pytest.raises(MalformedPktLine):
        read(body)


def test_pkt_line__longest():
    assert pkt_line(b"x" * MAX_LINE).startswith(b"fff0")
    with pytest.raises(ValueError, match="at most"):
        pkt_line(b"x" * (MAX_LINE + 1))


def test_report__reasons_cannot_forge_lines():
    push = PushRequest(commands=[], capabilities=frozenset({"report-status"}))
    report = report_push(push, [RefResult(ref="refs/heads/a", reason="no\n0012ok refs/heads/b")])
    assert report == (
        pkt_line(b"unpack ok\n") + pkt_line(b"ng refs/heads/a no 0012ok refs/heads/b\n") + FLUSH
    )


def test_report__nothing_to_a_client_that_wants_nothing():
    assert report_push(PushRequest(commands=[]), [RefResult(ref="refs/heads/a")]) == b""
