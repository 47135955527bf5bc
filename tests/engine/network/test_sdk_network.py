"""What sandboxes reach on the network, with and without internet access, through the unmodified SDK."""

import json
import os
import socket
from contextlib import AsyncExitStack
from ipaddress import IPv4Address, IPv4Network

import pytest
from e2b import AsyncSandbox, CommandExitException

from tests.engine.dns_resolvers import resolver
from tests.engine.host_networks import datagrams_to, run, server
from tests.engine.network.guest_dialler import dial, equip, is_refused
from tests.engine.network.stub_resolver import STUB, resolves_to

pytestmark = pytest.mark.needs_engine

SANDBOXES = IPv4Network("10.128.0.0/9")
METADATA = ["169.254.169.254", "169.254.170.2", "100.100.100.200", "192.0.0.192"]


@pytest.fixture
async def offline(options):
    """Create a sandbox that may not."""
    async with await AsyncSandbox.create(
        timeout=120, allow_internet_access=False, **options
    ) as sandbox:
        yield await equip(sandbox)


@pytest.fixture
def listening():
    """Have something answer on every address of the host; gives its port."""
    with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def address_of_no_network():
    """Give the host an address that is in none of the networks around it."""
    address = f"203.0.113.{os.getpid() % 250 + 1}"
    run("ip", "address", "add", f"{address}/32", "dev", "lo")
    yield address
    run("ip", "address", "delete", f"{address}/32", "dev", "lo")


def _host_addresses(family):
    return [
        (address["local"], address["scope"])
        for device in json.loads(run("ip", "-json", family, "address"))
        for address in device["addr_info"]
    ]


async def test_network__a_sandbox_reaches_the_internet_under_the_hosts_address(online, beyond):
    async with server(beyond.netns, beyond.internet) as port:
        place = f"tcp:{beyond.internet}:{port}"
        assert await dial(online, place) == {place: beyond.host_in_lan}
    ping = f"icmp:{beyond.internet}:0"
    assert await dial(online, ping) == {ping: "answered"}


async def test_network__names_resolve_through_the_loopback_stub(online, beyond):
    configuration = await online.files.read("/etc/resolv.conf")
    route = (await online.commands.run("ip route show default")).stdout.split()
    assert configuration.split() == ["nameserver", route[2]]
    async with (
        resolver(STUB, resolves_to(beyond.internet)) as stub,
        server(beyond.netns, beyond.internet) as port,
    ):
        place = f"tcp:packages.example:{port}"
        assert await dial(online, place) == {place: beyond.host_in_lan}
        found = await online.commands.run("getent ahosts packages.example")
    assert {line.split()[0] for line in found.stdout.splitlines()} == {beyond.internet}
    assert stub.asked


async def test_network__without_internet_nothing_is_reached(offline, beyond):
    gateway = (await offline.commands.run("ip route show default")).stdout.split()[2]
    async with (
        resolver(STUB, resolves_to(beyond.internet)) as stub,
        server(beyond.netns, beyond.internet) as port,
    ):
        addresses = (beyond.internet, beyond.private, beyond.lan, beyond.host_in_lan, gateway)
        assert await is_refused(
            offline,
            *(f"tcp:{address}:{port}" for address in addresses),
            *(f"udp:{address}:{port}" for address in addresses),
            f"udp:{beyond.internet}:53",
            f"icmp:{beyond.internet}:0",
        )
        with pytest.raises(CommandExitException):
            await offline.commands.run("getent hosts packages.example")
    assert not stub.asked


async def test_network__local_servers_work_without_internet(offline):
    await offline.commands.run("python3 -m http.server 8000 --bind ::1", background=True)
    page = "until curl -sf http://localhost:8000/ >/dev/null; do sleep 0.05; done; echo reached"
    assert (await offline.commands.run(page)).stdout == "reached\n"


async def test_network__host_is_unreachable(
    online, beyond, engine, listening, address_of_no_network
):
    gateway = (await online.commands.run("ip route show default")).stdout.split()[2]
    everyones = {IPv4Address(address) for address, _ in _host_addresses("-4")}
    # Those of other engines' networks are dropped by their rules before ours refuse them.
    other = {one for one in everyones if one in SANDBOXES or one.is_loopback}
    addresses = {str(one) for one in everyones - other} | {gateway}
    for address in (beyond.host_in_lan, address_of_no_network):
        assert address in addresses
        socket.create_connection((address, listening)).close()
    assert await is_refused(
        online,
        *(f"tcp:{address}:{listening}" for address in addresses),
        *(f"tcp:{address}:{engine.port}" for address in addresses),
        *(f"tcp:{address}:22" for address in addresses),
        *(f"udp:{address}:{listening}" for address in addresses),
    )
    assert set((await dial(online, f"tcp:127.0.0.1:{engine.port}")).values()) == {
        "ConnectionRefusedError"
    }


async def test_network__host_networks_and_metadata_are_refused(online, beyond):
    around = (beyond.private, beyond.link_local, beyond.lan)
    async with AsyncExitStack() as stack:
        ports = [
            await stack.enter_async_context(server(beyond.netns, address)) for address in around
        ]
        assert await is_refused(
            online,
            *(f"tcp:{address}:{port}" for address, port in zip(around, ports, strict=True)),
            *(f"icmp:{address}:0" for address in around),
            *(f"tcp:{address}:80" for address in METADATA),
        )


async def test_network__neighbour_is_unreachable(online, sandbox):
    await sandbox.commands.run("python3 -m http.server 8000 --bind 0.0.0.0", background=True)
    address = (await sandbox.commands.run("hostname -I")).stdout.strip()
    own = f"until curl -sf http://{address}:8000/ >/dev/null; do sleep 0.05; done"
    await sandbox.commands.run(own)
    assert await is_refused(
        online, f"tcp:{address}:8000", f"udp:{address}:8000", f"icmp:{address}:0"
    )


async def test_network__ipv6_is_unavailable(online, listening):
    places = [
        f"tcp:{address}{'%eth0' if scope == 'link' else ''}:{listening}"
        for address, scope in _host_addresses("-6")
    ]
    came_of_it = await dial(online, *places, f"tcp:2001:db8::1:{listening}", user="root")
    assert set(came_of_it.values()) <= {"ConnectionRefusedError", "OSError"}
    shown = (await online.commands.run("ip -6 address show dev eth0; ip -6 route")).stdout
    assert shown == ""


async def test_network__address_cannot_be_spoofed_by_root(online, sandbox, beyond):
    own, others = [
        (await one.commands.run("hostname -I")).stdout.strip() for one in (online, sandbox)
    ]
    with pytest.raises(CommandExitException, match="not permitted"):
        await online.commands.run(f"ip address add {others}/32 dev eth0", user="root")
    with datagrams_to(beyond.netns, beyond.internet) as arrived:
        address, port = arrived._listener.getsockname()
        for source in (others, "203.0.113.7", beyond.host_in_lan, own):
            await online.commands.run(
                f"python3 /opt/packet_forger.py {source} {address} {port} from-{source}",
                user="root",
            )
        assert await arrived.next() == f"from-{own}"


async def test_network__access_is_unchanged_without_the_engine(
    engine, online, offline, beyond, listening
):
    async with server(beyond.netns, beyond.internet) as port:
        place = f"tcp:{beyond.internet}:{port}"
        forbidden = [f"tcp:{beyond.host_in_lan}:{listening}", f"tcp:{METADATA[0]}:80"]
        watch = (
            "while sleep 0.05; do "
            f"timeout 1 bash -c 'exec 3<>/dev/tcp/{beyond.internet}/{port}' 2>/dev/null && touch out; "
            "done"
        )
        await offline.commands.run(watch, background=True, timeout=0)
        await engine.restart()
        for sandbox, is_online in ((online, True), (offline, False)):
            came_of_it = await dial(sandbox, place, *forbidden)
            assert (came_of_it.pop(place) == beyond.host_in_lan) is is_online
            assert set(came_of_it.values()) == {"ConnectionRefusedError"}
        assert not await offline.files.exists("out")


async def test_network__resumed_sandbox_keeps_its_access(offline, beyond):
    async with server(beyond.netns, beyond.internet) as port:
        await offline.pause()
        await offline.connect(timeout=60)
        assert await is_refused(offline, f"tcp:{beyond.internet}:{port}")
