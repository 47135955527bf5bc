import asyncio
import os
import socket

import pytest

from sandbox_engine.network.firewall.policy import CLOSED
from tests.engine.dns_resolvers import (
    LOOKUP_REFUSED,
    PORT,
    SERVER_FAILED,
    TRANSFER,
    TRUNCATED,
    UPDATE,
    answer,
    answers,
    ask,
    ask_by_stream,
    connection,
    question,
    resolver,
    silence,
)
from tests.engine.host_networks import HOST, call, socket_in

pytestmark = pytest.mark.needs_engine

_NUMBER = os.getpid() % 250 + 1
FIRST, SECOND = f"127.53.{_NUMBER}.1", f"127.53.{_NUMBER}.2"


@pytest.fixture
def place(place):
    configure(place, FIRST)
    return place


@pytest.fixture
async def link(network):
    return await network.acquire()


def configure(place, *servers):
    lines = [f"nameserver {server}\n" for server in servers]
    place.resolver_configuration.write_text(
        "search example\n" + "".join(lines) + "options rotate\n"
    )


async def test_dns__name_resolves_through_a_loopback_stub(network, link):
    asked = question("example.com", number=4711)
    async with resolver(FIRST):
        assert await ask(link.netns, network.dns_address, asked) == answer(asked)


async def test_dns__server_on_port_53_does_not_interfere(network, link):
    asked = question("example.com")
    async with resolver(network.dns_address, silence) as other, resolver(FIRST):
        assert await ask(link.netns, network.dns_address, asked) == answer(asked)
        async with connection(link.netns, network.dns_address) as streams:
            assert await ask_by_stream(*streams, asked) == answer(asked)
    assert not other.asked


async def test_dns__queries_use_new_ids_and_ports(network, link):
    async with resolver(FIRST) as upstream:
        for _ in range(5):
            await ask(link.netns, network.dns_address, question("example.com"))
    assert len({asked[:2] for asked, _ in upstream.asked}) > 1
    assert len({port for _, (_, port) in upstream.asked}) > 1


async def test_dns__tcp_connection_carries_several_queries(network, link):
    async with resolver(FIRST), connection(link.netns, network.dns_address) as streams:
        for name in ("one.example", "two.example"):
            asked = question(name)
            assert await ask_by_stream(*streams, asked) == answer(asked)


async def test_dns__truncated_answer_is_repeated_over_tcp(network, link):
    asked = question("large.example")
    async with resolver(FIRST, lambda asked: [answer(asked, flags=TRUNCATED)]) as upstream:
        truncated = await ask(link.netns, network.dns_address, asked)
        assert truncated == answer(asked, flags=TRUNCATED)
        upstream.behaviour = lambda asked: [answer(asked) + bytes(60_000)]
        async with connection(link.netns, network.dns_address) as streams:
            assert len(await ask_by_stream(*streams, asked)) > 60_000


@pytest.mark.parametrize(
    "unable",
    [silence, lambda asked: [answer(asked, flags=SERVER_FAILED)]],
    ids=["silent", "failing"],
)
async def test_dns__failing_resolver_is_skipped(place, network, link, unable):
    configure(place, FIRST, SECOND)
    asked = question("example.com")
    async with resolver(FIRST, unable), resolver(SECOND):
        assert await ask(link.netns, network.dns_address, asked) == answer(asked)


async def test_dns__unresponsive_resolver_is_demoted(place, network, link):
    configure(place, FIRST, SECOND)
    async with resolver(FIRST, silence) as silent, resolver(SECOND):
        for _ in range(3):
            await ask(link.netns, network.dns_address, question("example.com"))
    assert len(silent.asked) == 1


async def test_dns__no_resolver_means_servfail(network, link):
    asked = question("example.com", number=99)
    failed = await ask(link.netns, network.dns_address, asked)
    assert failed == answer(asked, flags=SERVER_FAILED)


async def test_dns__configuration_change_is_immediate(place, network, link):
    async with resolver(FIRST) as before, resolver(SECOND) as after:
        await ask(link.netns, network.dns_address, question("example.com"))
        configure(place, SECOND)
        await ask(link.netns, network.dns_address, question("example.com"))
    assert [len(before.asked), len(after.asked)] == [1, 1]


@pytest.mark.parametrize(
    "forged",
    [
        lambda asked: bytes([asked[0] ^ 1]) + answer(asked)[1:],
        lambda _: answer(question("other.example")),
        lambda asked: asked,
        lambda _: b"",
    ],
    ids=["other id", "other question", "no answer", "nothing"],
)
async def test_dns__mismatched_answers_are_ignored(network, link, forged):
    async with resolver(FIRST, lambda asked: [forged(asked), answer(asked)]):
        asked = question("example.com")
        assert await ask(link.netns, network.dns_address, asked) == answer(asked)


@pytest.mark.parametrize(
    "wish", [{"flags": UPDATE}, {"kind": TRANSFER}], ids=["update", "transfer"]
)
async def test_dns__only_lookups_are_forwarded(network, link, wish):
    async with resolver(FIRST) as upstream:
        refused = await ask(link.netns, network.dns_address, question("example.com", **wish))
    assert refused[3] & 0x0F == 4
    assert not upstream.asked


async def test_dns__garbage_is_ignored(network, link):
    async with resolver(FIRST):
        for garbage in (b"", b"?", bytes(12), question("example.com")[:-3], b"\xff" * 600):
            with socket_in(link.netns, socket.SOCK_DGRAM) as asker:
                asker.sendto(garbage, (network.dns_address, PORT))
        asked = question("example.com")
        assert await ask(link.netns, network.dns_address, asked) == answer(asked)


async def test_dns__sandbox_without_internet_gets_refused(network):
    link = await network.acquire(CLOSED)
    asked = question("example.com")
    refused = answer(asked, flags=LOOKUP_REFUSED)
    async with resolver(FIRST) as upstream:
        for _ in range(30):
            assert await ask(link.netns, network.dns_address, asked) == refused
        async with connection(link.netns, network.dns_address) as streams:
            assert await ask_by_stream(*streams, asked) == refused
    assert not upstream.asked


async def test_dns__only_sandboxes_are_served(network):
    with pytest.raises((TimeoutError, OSError)):
        await asyncio.wait_for(ask(HOST, network.dns_address, question("example.com")), 0.5)
    with pytest.raises((TimeoutError, OSError)):
        await asyncio.wait_for(call(HOST, network.dns_address, PORT), 0.5)


async def test_dns__flooding_sandbox_does_not_delay_others(network, link):
    other = await network.acquire()
    async with resolver(FIRST, silence) as upstream:
        with socket_in(link.netns, socket.SOCK_DGRAM) as flooder:
            for number in range(200):
                flooder.sendto(question("slow.example", number=number), (network.dns_address, PORT))
        async with asyncio.timeout(5):
            while len(upstream.asked) < 64:
                upstream.hears.clear()
                await upstream.hears.wait()
        upstream.behaviour = answers
        asked = question("example.com")
        assert await ask(other.netns, network.dns_address, asked) == answer(asked)
        slow = [one for one, _ in upstream.asked if b"slow" in one]
        assert len(slow) == 64


async def test_dns__repeated_query_succeeds_after_an_engine_restart(place):
    async with place.network() as network:
        link = await network.acquire()
    asked = question("example.com")
    async with resolver(FIRST):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(ask(link.netns, network.dns_address, asked), 0.5)
        async with place.network() as network:
            await network.restore(link)
            assert await ask(link.netns, network.dns_address, asked) == answer(asked)
