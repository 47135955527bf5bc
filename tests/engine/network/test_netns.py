import asyncio
import contextlib
import socket
from pathlib import Path

import pytest

from sandbox_engine.network.firewall.policy import CLOSED
from sandbox_engine.network.kernel.netns import dial, visiting
from tests.engine.host_networks import HOST

pytestmark = pytest.mark.needs_engine


@pytest.fixture
async def link(network):
    return await network.acquire(CLOSED)


def listening(netns, host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with visiting(netns):
        listener = socket.socket(family)
    listener.bind((host, 0))
    listener.listen()
    return contextlib.closing(listener)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "its address"])
async def test_port_dial__any_listening_address_is_reached(link, host):
    with listening(link.netns, link.address if host == "its address" else host) as listener:
        port = listener.getsockname()[1]
        with await dial(link.netns, port, address=link.address) as connection:
            accepted, _ = listener.accept()
            with accepted:
                accepted.sendall(b"hello")
                assert await asyncio.get_running_loop().sock_recv(connection, 5) == b"hello"
                assert not connection.getblocking()


async def test_port_dial__closed_port_is_refused_despite_a_host_listener(link):
    with listening(HOST, "127.0.0.1") as listener, pytest.raises(ConnectionRefusedError):
        await dial(link.netns, listener.getsockname()[1], address=link.address)


async def test_port_dial__missing_namespace_is_an_error(link):
    with pytest.raises(FileNotFoundError):
        await dial(f"{link.netns}.gone", 80, address=link.address)


async def test_port_dial__cancelled_dial_leaves_no_socket(link):
    with listening(link.netns, "127.0.0.1") as listener:
        port = listener.getsockname()[1]
        (await dial(link.netns, port, address=link.address)).close()  # its thread has started
        before = descriptors()
        dials = [asyncio.create_task(dial(link.netns, port, address=link.address)) for _ in "1234"]
        await asyncio.sleep(0)
        for one in dials:
            one.cancel()
        await asyncio.gather(*dials, return_exceptions=True)
        (await dial(link.netns, port, address=link.address)).close()  # after the others had a turn
        assert descriptors() == before


async def test_port_dial__threads_leave_the_namespace(link):
    with pytest.raises(ConnectionRefusedError):
        await dial(link.netns, 80, address=link.address)
    threads = Path("/proc/self/task").iterdir()
    assert {(thread / "ns/net").readlink() for thread in threads} == {Path(HOST).readlink()}


def descriptors():
    return sorted(path.name for path in Path("/proc/self/fd").iterdir())
