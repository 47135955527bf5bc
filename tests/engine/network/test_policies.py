"""What a sandbox with a network policy reaches: real servers beyond the host, the real kernel."""

import asyncio
import json
import socket
import struct
from ipaddress import IPv4Address, IPv4Network

import pytest

from sandbox_engine.network.firewall.policy import CLOSED, Policy
from sandbox_engine.network.firewall.resolved_addresses import MOST
from sandbox_engine.network.kernel.netns import visiting
from tests.engine.dns_resolvers import (
    LOOKUP_REFUSED,
    answer,
    ask,
    ask_by_stream,
    connection,
    question,
    resolver,
    telling,
)
from tests.engine.host_networks import (
    call,
    datagrams_to,
    is_refused,
    run,
    server,
)
from tests.engine.network.name_policies import (
    NAME,
    STUB,
    learns,
    only,
)

pytestmark = pytest.mark.needs_engine

FIN, SYN = 0x01, 0x02
FLAGS_IN_PACKET = 33


async def test_network_policy__allow_overrides_deny(network, servers, beyond):
    reached, refused = servers
    link = await network.acquire(only(f"{beyond.internet}/32"))
    assert await call(link.netns, *reached) == beyond.host_in_lan
    assert await is_refused(link.netns, *refused)


async def test_network_policy__deny_blocks_and_the_rest_is_open(network, servers, beyond):
    refused, reached = servers
    link = await network.acquire(Policy.parse(deny_out=[f"{beyond.internet}/30"]))
    assert await is_refused(link.netns, *refused)
    assert await call(link.netns, *reached) == beyond.host_in_lan


async def test_network_policy__applies_to_datagrams(network, beyond):
    link, free = await network.acquire(only(beyond.internet)), await network.acquire()
    with datagrams_to(beyond.netns, beyond.elsewhere) as denied:
        denied.send(link.netns)
        denied.send(free.netns)
        assert await denied.next() == free.netns
    with datagrams_to(beyond.netns, beyond.internet) as allowed:
        allowed.send(link.netns)
        assert await allowed.next() == link.netns


async def test_network_policy__cannot_open_what_the_engine_denies(network, beyond):
    link = await network.acquire(only(beyond.private, beyond.lan, beyond.link_local))
    for address in (beyond.private, beyond.lan, beyond.link_local):
        async with server(beyond.netns, address) as port:
            assert await is_refused(link.netns, address, port)


async def test_network_policy__can_deny_operator_allowed_networks(place, beyond):
    async with (
        place.network(allow=[IPv4Network("10.0.0.0/8")]) as network,
        server(beyond.netns, beyond.private) as port,
    ):
        allowed = await network.acquire(only(beyond.private))
        assert await call(allowed.netns, beyond.private, port) == beyond.host_in_lan
        for policy in (Policy.parse(deny_out=["10.0.0.0/8"]), only(beyond.internet), CLOSED):
            link = await network.acquire(policy)
            assert await is_refused(link.netns, beyond.private, port)


async def test_network_policy__name_opens_only_its_address(network, servers, beyond):
    reached, refused = servers
    link = await network.acquire(only(NAME))
    async with resolver(STUB, telling(api_example_com=beyond.internet)):
        assert await is_refused(link.netns, *reached)
        assert await learns(network, link) == answer(question(NAME), beyond.internet)
        assert await call(link.netns, *reached) == beyond.host_in_lan
    assert await is_refused(link.netns, *refused)


async def test_network_policy__other_names_are_refused_without_a_lookup(network, beyond):
    link = await network.acquire(only(NAME, beyond.elsewhere))
    async with (
        resolver(STUB, telling(api_example_com=beyond.internet)) as stub,
        connection(link.netns, network.dns_address) as streams,
    ):
        for name in ("secret.evil.example", "example.com", f"x.{NAME}", f"{NAME}.evil.example"):
            refused = answer(question(name), flags=LOOKUP_REFUSED)
            assert await learns(network, link, name) == refused
            assert await ask_by_stream(*streams, question(name)) == refused
    assert not stub.asked


async def test_network_policy__wildcard_opens_all_subdomains(network, servers, beyond):
    reached, _ = servers
    link = await network.acquire(only("*.example.com"))
    async with resolver(STUB, telling(a_b_example_com=beyond.internet)) as stub:
        await learns(network, link, "example.com")
        await learns(network, link, "notexample.com")
        dotted = question("x_example.com").replace(b"x_", b"x.")  # one label, with a dot in it
        await ask(link.netns, network.dns_address, dotted)
        assert not stub.asked
        await learns(network, link, "A.b.Example.com")
        assert await call(link.netns, *reached) == beyond.host_in_lan


async def test_network_policy__changed_answers_are_followed(network, servers, beyond):
    first, second = servers
    link = await network.acquire(only(NAME))
    async with resolver(STUB, telling(api_example_com=beyond.internet)) as stub:
        await learns(network, link)
        assert await is_refused(link.netns, *second)
        stub.behaviour = telling(api_example_com=beyond.elsewhere)
        await learns(network, link)
        for place in (second, first):  # what was told first holds for its time
            assert await call(link.netns, *place)


async def test_network_policy__latest_of_many_addresses_are_open(network, servers, beyond):
    reached, _ = servers
    link = await network.acquire(only("*.example.com"))
    flood = (IPv4Address("192.0.2.0") + number for number in range(3 * MOST))
    async with resolver(STUB) as stub:
        stub.behaviour = lambda asked: [answer(asked, *(str(next(flood)) for _ in range(60)))]
        for number in range(2 * MOST // 60 + 1):
            await learns(network, link, f"{number}.example.com")
        stub.behaviour = telling(api_example_com=beyond.internet)
        await learns(network, link)
        assert await call(link.netns, *reached) == beyond.host_in_lan


async def test_network_policy__opened_addresses_expire_and_are_labelled(place, network, beyond):
    link = await network.acquire(only(NAME))
    async with resolver(STUB, telling(api_example_com=beyond.internet)):
        await learns(network, link)
    listed = run("nft", "-j", "list", "set", *place.table, f"opened_{link.name}")
    (opened,) = json.loads(listed)["nftables"][1]["set"]["elem"]
    shown = opened["elem"]
    assert (shown["val"], shown["comment"]) == (beyond.internet, NAME)
    assert 590 <= shown["timeout"] <= 600


async def test_network_policy__tcp_answers_open_addresses_too(network, servers, beyond):
    reached, _ = servers
    link = await network.acquire(only(NAME))
    async with (
        resolver(STUB, telling(api_example_com=beyond.internet)),
        connection(link.netns, network.dns_address) as streams,
    ):
        await ask_by_stream(*streams, question(NAME))
        assert await call(link.netns, *reached) == beyond.host_in_lan


async def test_network_policy__name_resolving_to_a_denied_network_opens_nothing(network, beyond):
    link = await network.acquire(only(NAME))
    async with (
        resolver(STUB, telling(api_example_com=beyond.private)),
        server(beyond.netns, beyond.private) as port,
    ):
        await learns(network, link)
        assert await is_refused(link.netns, beyond.private, port)


async def test_network_policy__stray_packets_are_dropped(network, beyond):
    link = await network.acquire()
    with visiting(beyond.netns):
        heard = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
    with heard:
        heard.setblocking(False)
        heard.bind((beyond.internet, 0))
        for flags in (SYN | FIN, SYN):
            send_segment(link, beyond.internet, flags=flags)
        async with asyncio.timeout(30):
            packet = await asyncio.get_running_loop().sock_recv(heard, 100)
    assert packet[FLAGS_IN_PACKET] == SYN


def send_segment(link, address, *, flags):
    """Send a TCP segment that no socket would send."""
    ends = socket.inet_aton(link.address) + socket.inet_aton(address)
    segment = struct.pack("!HHIIBBHHH", 4711, 80, 1, 0, 5 << 4, flags, 1024, 0, 0)
    covered = ends + struct.pack("!HH", socket.IPPROTO_TCP, len(segment)) + segment
    total = sum(struct.unpack(f"!{len(covered) // 2}H", covered))
    checksum = ~((total & 0xFFFF) + (total >> 16)) & 0xFFFF
    with visiting(link.netns):
        sender = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_TCP)
    with sender:
        sender.sendto(segment[:16] + struct.pack("!H", checksum) + segment[18:], (address, 0))
