"""Network policies through the unmodified SDK: what a sandbox reaches, and what callers are told."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from e2b import (
    ALL_TRAFFIC,
    AsyncSandbox,
    NotFoundException,
    Sandbox,
    SandboxException,
    SandboxNetworkOpts,
)

from tests.engine.dns_resolvers import resolver, telling
from tests.engine.echo_connections import echo
from tests.engine.network.guest_dialler import dial, equip, is_refused
from tests.engine.network.name_policies import NAME
from tests.engine.network.stub_resolver import STUB
from tests.engine.polling import until

pytestmark = pytest.mark.needs_engine

TALKING = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2]))) as talking:
    for line in sys.stdin:
        talking.sendall(line.encode())
        print(talking.recv(100).decode(), end="", flush=True)
"""


@pytest.fixture(scope="module")
def limited_sync(engine):
    """Create a sandbox that may reach one name."""
    network = SandboxNetworkOpts(allow_out=[NAME], deny_out=[ALL_TRAFFIC])
    with Sandbox.create(timeout=600, network=network, **engine.options) as sandbox:
        yield sandbox


@pytest.fixture
async def limited(limited_sync, options):
    """Hand out that sandbox with nothing changed about its network."""
    sandbox = await equip(await AsyncSandbox.connect(limited_sync.sandbox_id, **options))
    await sandbox.update_network({"allow_out": [NAME], "deny_out": [ALL_TRAFFIC]})
    return sandbox


@pytest.fixture
async def stub(beyond):
    """Run the host's resolver, which knows two names."""
    known = telling(api_example_com=beyond.internet, other_example=beyond.elsewhere)
    async with resolver(STUB, known) as stub:
        yield stub


async def test_network_policy__only_allowed_names_are_reached(limited, beyond, servers, stub):
    (_, port), (_, other) = servers
    reached = f"tcp:{NAME}:{port}"
    assert await dial(limited, reached) == {reached: beyond.host_in_lan}
    assert await is_refused(
        limited,
        f"tcp:{beyond.elsewhere}:{other}",
        f"udp:{beyond.elsewhere}:{other}",
        f"icmp:{beyond.elsewhere}:0",
    )
    asked = len(stub.asked)
    unknown = f"tcp:other.example:{other}"
    assert await dial(limited, unknown) == {unknown: "gaierror"}
    assert len(stub.asked) == asked


async def test_network_policy__ping_and_datagrams_follow_it(limited, beyond, servers, stub):
    await limited.update_network({"allow_out": [beyond.internet], "deny_out": [ALL_TRAFFIC]})
    ping, other = f"icmp:{beyond.internet}:0", f"icmp:{beyond.elsewhere}:0"
    assert await dial(limited, ping) == {ping: "answered"}
    assert await is_refused(limited, other)


async def test_network_policy__update_affects_open_connections(limited, beyond):
    async with _talking(limited, beyond) as (talking, heard):
        await limited.update_network({"deny_out": [f"{beyond.internet}/32"]})
        await limited.commands.send_stdin(talking.pid, "after\n")
        with pytest.raises(SandboxException):
            await talking.wait()
        assert "after" not in "".join(heard)


async def test_network_policy__interrupted_update_is_completed_after_a_crash(
    limited, beyond, engine
):
    record = engine.state_dir / "sandboxes" / limited.sandbox_id / "record.json"
    async with _talking(limited, beyond) as (talking, heard):
        engine.kill()
        known = json.loads(record.read_text())
        known["network"]["deny_out"] = [f"{beyond.internet}/32"]
        record.write_text(json.dumps(known | {"policing": True}))
        await asyncio.to_thread(engine.start)
        again = await limited.commands.connect(talking.pid, on_stdout=heard.append)
        await limited.commands.send_stdin(talking.pid, "after\n")
        with pytest.raises(SandboxException):
            await again.wait()
        assert "after" not in "".join(heard)


async def test_network_policy__omitted_fields_are_reset(limited, beyond, servers):
    _, (address, port) = servers
    place = f"tcp:{address}:{port}"
    assert await is_refused(limited, place)
    await limited.update_network({"allow_internet_access": False})
    info = await limited.get_info()
    assert (info.network, info.allow_internet_access) == ({}, False)
    assert await is_refused(limited, place)
    await limited.update_network({"deny_out": [beyond.internet]})
    info = await limited.get_info()
    assert info.network == {"deny_out": [beyond.internet]}
    assert info.allow_internet_access is None
    assert await dial(limited, place) == {place: beyond.host_in_lan}


async def test_network_policy__survives_pause_and_restart(limited, beyond, engine, servers, stub):
    (_, port), (elsewhere, other) = servers
    reached, refused = f"tcp:{NAME}:{port}", f"tcp:{elsewhere}:{other}"
    await limited.pause()
    with pytest.raises(NotFoundException):
        await limited.update_network({})
    await limited.connect(timeout=600)
    assert await is_refused(limited, refused)
    await engine.restart()
    assert await dial(limited, reached) == {reached: beyond.host_in_lan}
    assert await is_refused(limited, refused)
    network = (await limited.get_info()).network
    assert network == {"allow_out": [NAME], "deny_out": [ALL_TRAFFIC]}


async def test_network_policy__resumed_and_forked_sandboxes_keep_it(limited, servers, beyond):
    (address, port), _ = servers
    await limited.update_network({"allow_out": [beyond.elsewhere], "deny_out": [ALL_TRAFFIC]})
    (fork,) = await limited.fork(timeout=120)
    assert isinstance(fork, AsyncSandbox)
    async with fork:
        assert await is_refused(fork, f"tcp:{address}:{port}")
        assert (await fork.get_info()).network == (await limited.get_info()).network


@pytest.mark.parametrize(
    ("network", "told"),
    [
        ({"deny_out": ["example.com"]}, "400: invalid denied CIDR example.com"),
        ({"deny_out": ["10.0.0.0/33"]}, "400: invalid denied CIDR 10.0.0.0/33"),
        ({"deny_out": ["0.0.0.0"]}, "400: invalid denied CIDR 0.0.0.0"),
        ({"allow_out": ["https://example.com"]}, "400: invalid allowed address https://"),
        ({"allow_out": ["1.2.3.400"]}, "400: invalid allowed address 1.2.3.400"),
        ({"allow_out": ["a*.example.com"]}, "400: invalid allowed address"),
        ({"allow_out": ["example.com"]}, "400: When specifying allowed domains in allow out"),
        ({"deny_out": ["192.0.2.1"] * 1001}, "400: denyOut has 1001 entries; at most 1000"),
        ({"allow_out": ["2001:db8::1"]}, "501: Reaching IPv6 addresses is not implemented"),
        ({"https_ports": [443]}, "501: .*HTTPS is not implemented"),
        ({"rules": {"example.com": [{}]}}, "501: .*rules.* is not implemented"),
        ({"egress_proxy": {"address": "a.example:1080"}}, "501: .*proxy is not implemented"),
    ],
)
async def test_network_policy__unsupported_options_are_reported(options, network, told):
    with pytest.raises(SandboxException, match=told):
        await AsyncSandbox.create(network=network, **options)


@asynccontextmanager
async def _talking(sandbox, beyond):
    """Have the sandbox be connected to a server; gives the command and what it prints."""
    heard: list[str] = []
    await sandbox.update_network({})
    await sandbox.files.write("talking.py", TALKING)
    async with echo(beyond.netns, beyond.internet) as port:
        talking = await sandbox.commands.run(
            f"python3 talking.py {beyond.internet} {port}",
            background=True,
            stdin=True,
            timeout=0,
            on_stdout=heard.append,
        )
        await sandbox.commands.send_stdin(talking.pid, "before\n")
        await until(lambda: _has(heard, "before"), timeout=60)
        yield talking, heard


async def _has(heard, text):
    return text in "".join(heard)
