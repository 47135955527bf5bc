import asyncio
import socket
from contextlib import AsyncExitStack
from ipaddress import IPv4Network
from pathlib import Path

import pytest

from sandbox_engine.network.firewall.policy import CLOSED, OPEN
from sandbox_engine.network.kernel.netns import visiting
from sandbox_engine.rootfs.ownership import UID_BASE
from tests.engine.host_networks import (
    HOST,
    call,
    datagrams_to,
    gets_through,
    inside,
    is_refused,
    run,
    server,
    socket_in,
    workplace,
)
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine


async def test_network__internet_is_reached_with_the_host_address(network, beyond):
    link = await network.acquire()
    async with server(beyond.netns, beyond.internet) as port:
        assert await call(link.netns, beyond.internet, port) == beyond.host_in_lan


@pytest.mark.parametrize("where", ["private", "link_local", "lan"])
async def test_network__host_networks_are_refused(network, beyond, where):
    link = await network.acquire()
    address = getattr(beyond, where)
    async with server(beyond.netns, address) as port:
        assert await call(HOST, address, port) == beyond.host_in_lan
        with pytest.raises(ConnectionRefusedError):
            await call(link.netns, address, port)


@pytest.mark.parametrize("address", ["169.254.169.254", "100.100.100.200", "192.0.0.192"])
async def test_network__metadata_addresses_are_refused(network, address):
    link = await network.acquire()
    with pytest.raises(ConnectionRefusedError):
        await call(link.netns, address, 80)


async def test_network__later_host_networks_are_refused(network, beyond):
    link = await network.acquire()
    async with server(beyond.netns, beyond.elsewhere) as port:
        assert await call(link.netns, beyond.elsewhere, port)
        with beyond.has_the_host(f"{beyond.host_elsewhere}/24"):
            await until(lambda: is_refused(link.netns, beyond.elsewhere, port), timeout=60)


async def test_network__host_is_refused_at_all_addresses(network, beyond):
    link = await network.acquire()
    on_loopback = beyond.internet.replace("198.51.100", "198.51.101")
    run("ip", "address", "add", on_loopback, "dev", "lo")
    try:
        async with server(HOST, "0.0.0.0") as port:
            for address in (beyond.host_in_lan, network.dns_address, on_loopback):
                assert await call(HOST, beyond.host_in_lan, port)
                with pytest.raises(ConnectionRefusedError):
                    await call(link.netns, address, port)
    finally:
        run("ip", "address", "delete", on_loopback, "dev", "lo")


async def test_network__neighbour_is_unreachable_despite_allowed_private_networks(place, beyond):
    async with place.network(allow=[IPv4Network("10.0.0.0/8")]) as network:
        one, other = await network.acquire(), await network.acquire()
        async with server(beyond.netns, beyond.private) as port:
            assert await call(one.netns, beyond.private, port) == beyond.host_in_lan
        async with server(other.netns, "0.0.0.0") as port:
            assert await call(other.netns, other.address, port)
            assert not await gets_through(one.netns, other.address, port)


async def test_network__sandboxes_of_other_engines_are_unreachable(place):
    allow = [IPv4Network("10.0.0.0/8")]
    async with AsyncExitStack() as stack:
        elsewhere = await stack.enter_async_context(workplace())
        networks = [
            await stack.enter_async_context(one.network(allow=allow)) for one in (place, elsewhere)
        ]
        one, other = [await network.acquire() for network in networks]
        async with server(other.netns, "0.0.0.0") as port:
            assert not await gets_through(one.netns, other.address, port)


async def test_network__nothing_outside_reaches_a_sandbox(network, beyond):
    link = await network.acquire()
    run("ip", "-netns", beyond.name, "route", "add", link.address, "dev", "eth0")
    with datagrams_to(link.netns, link.address) as arrived:
        for netns in (beyond.netns, HOST, link.netns):
            arrived.send(netns)
        assert await arrived.next() == link.netns


async def test_network__everything_is_refused_without_internet(network, beyond):
    link = await network.acquire(CLOSED)
    async with server(beyond.netns, beyond.internet) as port:
        for address, wanted in ((beyond.internet, port), (network.dns_address, 81)):
            with pytest.raises(ConnectionRefusedError):
                await call(link.netns, address, wanted)


async def test_network__source_address_cannot_be_spoofed(network, beyond):
    link, other = await network.acquire(), await network.acquire()
    with datagrams_to(beyond.netns, beyond.internet) as arrived:
        for forged in (other.address, "203.0.113.250"):
            inside(link.netns, "ip", "address", "add", f"{forged}/32", "dev", "eth0")
            arrived.send(link.netns, source=forged)
        arrived.send(link.netns, source=link.address)
        assert await arrived.next() == f"{link.netns} as {link.address}"


async def test_network__ipv6_is_limited_to_loopback(network):
    link = await network.acquire()
    assert "inet6 ::1" in inside(link.netns, "ip", "address", "show", "dev", "lo")
    assert "inet6" not in inside(link.netns, "ip", "address", "show", "dev", "eth0")
    assert "inet6" not in inside(HOST, "ip", "address", "show", "dev", link.name)


async def test_network__links_learn_no_neighbours(network, beyond):
    link = await network.acquire()
    async with server(beyond.netns, beyond.internet) as port:
        assert await call(link.netns, beyond.internet, port)
    claim_addresses(link, asked=network.dns_address)
    for netns, device in ((link.netns, "eth0"), (HOST, link.name)):
        known = inside(netns, "ip", "neighbour", "show", "dev", device).splitlines()
        assert [line.split()[-1] for line in known] == ["PERMANENT"]


async def test_network__link_belongs_to_the_sandbox_user_namespace(network):
    link = await network.acquire()
    inside_both = ["nsenter", f"--user={link.userns}", f"--net={link.netns}"]
    assert run(*inside_both, "cat", "/proc/self/uid_map").split() == ["0", str(UID_BASE), "65536"]


async def test_network__ping_and_low_ports_work_unprivileged(network):
    link = await network.acquire()
    program = (
        "import socket as s; s.create_server(('', 80)); "
        "s.socket(s.AF_INET, s.SOCK_DGRAM, s.IPPROTO_ICMP).connect(('127.0.0.1', 0))"
    )
    entered = ["nsenter", f"--user={link.userns}", f"--net={link.netns}"]
    run(*entered, "--setuid=1000", "--setgid=1000", "/usr/bin/python3", "-c", program)


async def test_network__connection_table_cannot_be_filled(network, beyond):
    link = await network.acquire()
    arrived = 0
    with socket_in(beyond.netns, socket.SOCK_DGRAM) as heard:
        heard.bind((beyond.internet, 0))
        for port in range(10_000, 12_300):
            with socket_in(link.netns, socket.SOCK_DGRAM) as asker:
                asker.bind((link.address, port))
                asker.sendto(b"?", heard.getsockname())
            try:
                heard.recv(1)
            except BlockingIOError:
                continue
            arrived += 1
    assert arrived == 2048


@pytest.mark.slow  # two hundred networks
async def test_network__two_hundred_links_leave_nothing_behind(place):
    async with place.network(pool_size=4) as network:
        links = await asyncio.gather(
            *[network.acquire(CLOSED if n % 2 else OPEN) for n in range(200)]
        )
        assert len({link.address for link in links}) == 200
        await asyncio.gather(*map(network.release, links))
    assert set(place.traces().values()) == {0}


async def test_network__closing_keeps_links_in_use(place, beyond):
    async with place.network(pool_size=3) as network:
        link = await network.acquire()
    assert place.traces() == {
        "interfaces": 1,
        "mounts": 2,
        "files": 2,
        "elements": 1,
        "policies": 0,
    }
    async with server(beyond.netns, beyond.internet) as port:
        assert await call(link.netns, beyond.internet, port)


async def test_network__crash_recovery_restores_links_and_sweeps_the_rest(place, beyond):
    online, abandoned, offline = await place.crash()
    async with place.network() as network:
        await network.restore(online)
        await network.restore(offline, CLOSED)
        await network.sweep([online, offline])
        assert place.traces() == {
            "interfaces": 2,
            "mounts": 4,
            "files": 4,
            "elements": 2,
            "policies": 0,
        }
        fresh = await network.acquire()
        assert fresh.address not in (online.address, offline.address)
        async with server(beyond.netns, beyond.internet) as port:
            assert await call(online.netns, beyond.internet, port)
            with pytest.raises(ConnectionRefusedError):
                await call(offline.netns, beyond.internet, port)
        for link in (online, offline, fresh):
            await network.release(link)
        assert set(place.traces().values()) == {0}
    assert not Path(abandoned.netns).exists()


async def test_network__addresses_of_a_crashed_engine_are_not_reused(place):
    left, *_ = await place.crash()
    async with workplace() as elsewhere, elsewhere.network() as network:
        other = await network.acquire()
        assert IPv4Network(f"{left.address}/18", strict=False) != IPv4Network(
            f"{other.address}/18", strict=False
        )


async def test_network__flushed_rules_are_restored(place, network, beyond):
    online, offline = await network.acquire(), await network.acquire(CLOSED)
    run("nft", "delete", "table", *place.table)
    async with server(beyond.netns, beyond.internet) as port:
        async with asyncio.timeout(60):
            while not await gets_through(online.netns, beyond.internet, port):
                pass
        with pytest.raises(ConnectionRefusedError):
            await call(offline.netns, beyond.internet, port)


async def test_network__conflicting_firewall_is_reported_with_the_fix(network, place):
    table = f"conflict_{place.instance}"
    hook = "{ type filter hook forward priority 10; policy drop; }"
    run("nft", f"add table inet {table}; add chain inet {table} forward {hook}")
    try:
        run("nft", f"add rule inet {table} forward accept")  # the machine is not the test's alone
        (conflict,) = [one for one in await network.conflicts() if table in one]
        for command in conflict.partition("Let them pass: ")[2].split("; "):
            run("sh", "-c", command)
        assert not [one for one in await network.conflicts() if table in one]
    finally:
        run("nft", "delete", "table", "inet", table)


def claim_addresses(link, *, asked):
    """Have the sandbox ask for the host's MAC in the name of many."""
    with visiting(link.netns):
        wire = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    with wire:
        wire.bind(("eth0", 0))
        for number in range(50):
            mac = b"\x02\0\0\0\0" + bytes([number])
            sender = mac + socket.inet_aton(f"10.99.0.{number}")
            asks = bytes.fromhex("0001080006040001") + sender + bytes(6) + socket.inet_aton(asked)
            wire.send(b"\xff" * 6 + mac + b"\x08\x06" + asks)
