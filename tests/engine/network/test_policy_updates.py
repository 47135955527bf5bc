"""Policies that change while a sandbox runs, or that are put back."""

import asyncio
import socket

import pytest

from sandbox_engine.network.firewall.policy import CLOSED, OPEN, Policy
from tests.engine.dns_resolvers import resolver, telling
from tests.engine.echo_connections import echo, talk
from tests.engine.host_networks import (
    call,
    is_refused,
    run,
    socket_in,
)
from tests.engine.network.name_policies import (
    NAME,
    STUB,
    learns,
    only,
)
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine


async def test_policy_update__connection_outlives_its_dns_answer(place, network, beyond):
    link = await network.acquire(only(NAME))
    async with (
        resolver(STUB, telling(api_example_com=beyond.internet)),
        echo(beyond.netns, beyond.internet) as port,
    ):
        await learns(network, link)
        async with talk(link.netns, beyond.internet, port) as talking:
            assert await talking.says(b"one") == b"one"
            run("nft", "flush", "set", *place.table, f"opened_{link.name}")
            assert await is_refused(link.netns, beyond.internet, port)
            assert await talking.says(b"two") == b"two"
            await network.apply_network_policy(link, only(NAME, beyond.elsewhere))
            assert await talking.says(b"three") == b"three"


async def test_policy_update__update_cuts_only_denied_connections(network, beyond):
    link = await network.acquire()
    async with (
        echo(beyond.netns, beyond.internet) as one,
        echo(beyond.netns, beyond.elsewhere) as other,
        talk(link.netns, beyond.internet, one) as cut,
        talk(link.netns, beyond.elsewhere, other) as spared,
    ):
        assert [await one.says(b"hello") for one in (cut, spared)] == [b"hello", b"hello"]
        await network.apply_network_policy(link, Policy.parse(deny_out=[beyond.internet]))
        with pytest.raises(ConnectionError):
            await cut.says(b"still there?")
        assert await spared.says(b"still there?") == b"still there?"
        await network.apply_network_policy(link, CLOSED)
        with pytest.raises(ConnectionError):
            await spared.says(b"and now?")
        await network.apply_network_policy(link, OPEN)
        async with talk(link.netns, beyond.internet, one) as anew:
            assert await anew.says(b"hello") == b"hello"


async def test_policy_update__incoming_packets_of_denied_connections_are_dropped(network, beyond):
    link = await network.acquire()
    loop = asyncio.get_running_loop()
    with (
        socket_in(beyond.netns, socket.SOCK_DGRAM) as sender,
        socket_in(link.netns, socket.SOCK_DGRAM) as caller,
    ):
        sender.bind((beyond.internet, 0))
        await loop.sock_connect(caller, sender.getsockname())
        await loop.sock_sendall(caller, b"send me more")
        _, whence = await loop.sock_recvfrom(sender, 100)
        await network.apply_network_policy(link, only(beyond.elsewhere))
        sender.sendto(b"closed", whence)
        await network.apply_network_policy(link, OPEN)
        await loop.sock_sendall(caller, b"send me more")
        _, whence = await loop.sock_recvfrom(sender, 100)
        sender.sendto(b"open", whence)
        async with asyncio.timeout(30):
            assert await loop.sock_recv(caller, 100) == b"open"


async def test_policy_update__newly_allowed_names_need_no_new_lookup(network, servers, beyond):
    reached, refused = servers
    link = await network.acquire()
    async with resolver(
        STUB, telling(api_example_com=beyond.internet, other_example=beyond.elsewhere)
    ):
        for name in (NAME, "other.example"):
            await learns(network, link, name)
    await network.apply_network_policy(link, only(NAME))
    assert await call(link.netns, *reached) == beyond.host_in_lan
    assert await is_refused(link.netns, *refused)


async def test_policy_update__policy_and_opened_addresses_survive_a_restart(place, servers, beyond):
    reached, refused = servers
    async with (
        resolver(STUB, telling(api_example_com=beyond.internet)),
        echo(beyond.netns, beyond.internet) as port,
    ):
        async with place.network() as network:
            link = await network.acquire(only(NAME))
            await learns(network, link)
        async with talk(link.netns, beyond.internet, port) as talking:
            assert await is_refused(link.netns, *refused)
            async with place.network() as network:
                await network.restore(link, only(NAME))
                await network.sweep([link])
                assert await talking.says(b"still there?") == b"still there?"
                assert await call(link.netns, *reached) == beyond.host_in_lan
                assert await is_refused(link.netns, *refused)
                await network.apply_network_policy(link, only(NAME, beyond.elsewhere))
                assert await talking.says(b"and now?") == b"and now?"


@pytest.mark.parametrize("act", ["delete", "flush"])
async def test_policy_update__flushed_policies_are_restored(place, network, servers, beyond, act):
    reached, refused = servers
    link = await network.acquire(only(NAME))
    async with resolver(STUB, telling(api_example_com=beyond.internet)):
        await learns(network, link)
    run("nft", act, "table", *place.table)
    await until(lambda: is_refused(link.netns, *refused), timeout=60)
    assert await call(link.netns, *reached) == beyond.host_in_lan


async def test_policy_update__released_links_leave_nothing(place, beyond):
    async with place.network() as network:
        for policy in (only(NAME), only(beyond.internet), CLOSED, OPEN):
            links = await network.acquire(policy), await network.acquire()
            await network.apply_network_policy(links[1], policy)
            await asyncio.gather(*map(network.release, links))
        assert set(place.traces().values()) == {0}


async def test_policy_update__update_cuts_datagram_flows(network, beyond):
    loop = asyncio.get_running_loop()
    link, free = await network.acquire(), await network.acquire()
    with (
        socket_in(beyond.netns, socket.SOCK_DGRAM) as heard,
        socket_in(link.netns, socket.SOCK_DGRAM) as caller,
        socket_in(free.netns, socket.SOCK_DGRAM) as other,
    ):
        heard.bind((beyond.internet, 0))
        await loop.sock_connect(caller, heard.getsockname())
        await loop.sock_sendall(caller, b"before")
        _, whence = await loop.sock_recvfrom(heard, 100)
        heard.sendto(b"so that the kernel takes it for a lasting one", whence)
        await loop.sock_recv(caller, 100)
        await network.apply_network_policy(link, only(beyond.elsewhere))
        await loop.sock_sendall(caller, b"after")
        other.sendto(b"the other's", heard.getsockname())
        async with asyncio.timeout(30):
            assert await loop.sock_recv(heard, 100) == b"the other's"


async def test_policy_update__missing_rules_fail_no_request(place, network, servers, beyond):
    reached, refused = servers
    one, other = [await network.acquire(only(NAME)) for _ in range(2)]
    run("nft", "delete", "table", *place.table)
    await network.apply_network_policy(one, only(beyond.internet))
    assert await call(one.netns, *reached) == beyond.host_in_lan
    assert await is_refused(one.netns, *refused)
    run("nft", "delete", "table", *place.table)
    await network.release(other)
    await until(lambda: is_refused(one.netns, *refused), timeout=60)
