"""What is around a host: networks with servers in them, to be reached by sandboxes or not."""

import asyncio
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from ipaddress import IPv4Network
from pathlib import Path

from sandbox_engine.keeper.client import Keeper
from sandbox_engine.network.kernel.netns import visiting
from sandbox_engine.network.naming import link_prefix
from sandbox_engine.network.network import Link, Network

HOST = "/proc/self/ns/net"
_SUBNETS = IPv4Network("10.128.0.0/9")
_ANSWER_SECONDS = 30.0
_SILENCE_SECONDS = 0.5


@dataclass(frozen=True)
class Outside:
    """A namespace that plays all that is beyond the host, by the kinds of its addresses."""

    name: str
    internet: str
    elsewhere: str
    private: str
    link_local: str
    lan: str
    host_in_lan: str
    host_elsewhere: str

    @property
    def netns(self) -> str:
        return f"/run/netns/{self.name}"

    @contextmanager
    def has_the_host(self, address: str) -> Iterator[None]:
        """Give the host an address on the way there."""
        run("ip", "address", "add", address, "dev", self.name)
        try:
            yield
        finally:
            run("ip", "address", "delete", address, "dev", self.name)


@contextmanager
def outside() -> Iterator[Outside]:
    """Put networks beyond the host."""
    number = _claim_number()
    there = Outside(
        name=f"outside{number}",
        internet=f"198.51.100.{number}",
        elsewhere=f"198.19.{number}.2",
        private=f"10.77.{number}.1",
        link_local=f"169.254.{number}.9",
        lan=f"198.18.{number}.2",
        host_in_lan=f"198.18.{number}.1",
        host_elsewhere=f"198.19.{number}.1",
    )
    try:
        _connect(there)
        yield there
        run("ip", "link", "delete", there.name)
    finally:
        run("ip", "netns", "delete", there.name)


def _claim_number() -> int:
    """Make a namespace that no other run of the tests has; gives the number in its name."""
    for number in range(1, 251):
        made = subprocess.run(
            ["ip", "netns", "add", f"outside{number}"], capture_output=True, check=False
        )
        if made.returncode == 0:
            return number
    raise AssertionError("namespaces that killed tests left are to be removed first")


def _connect(there: Outside) -> None:
    name, netns = there.name, ("-netns", there.name)
    run("ip", "link", "add", name, "type", "veth", "peer", "eth0", "netns", name)
    run("ip", "link", "set", name, "up")
    run("ip", "address", "add", f"{there.host_in_lan}/24", "dev", name)
    run("ip", *netns, "link", "set", "eth0", "up")
    for address in (there.internet, there.elsewhere, there.private, there.link_local, there.lan):
        run("ip", *netns, "address", "add", f"{address}/32", "dev", "eth0")
        run("ip", "route", "add", f"{address}/32", "dev", name)
    run("ip", *netns, "route", "add", "default", "dev", "eth0")


@dataclass(frozen=True)
class Workplace:
    """An engine's name and directories, which outlive its process."""

    instance: str
    directory: Path

    @asynccontextmanager
    async def network(
        self, *, pool_size: int = 0, allow: Collection[IPv4Network] = ()
    ) -> AsyncIterator[Network]:
        """Open the network as an engine does, and close it so."""
        keeper = await Keeper.connect(self.directory / "keeper")
        try:
            network = await Network.open(
                instance=self.instance,
                run_dir=self.directory,
                state_dir=self.directory,
                keeper=keeper,
                pool_size=pool_size,
                subnet_pool=_SUBNETS,
                allow=allow,
                resolver_configuration=self.resolver_configuration,
            )
            try:
                yield network
            finally:
                await network.close()
        finally:
            await keeper.close()

    @property
    def resolver_configuration(self) -> Path:
        return self.directory / "resolv.conf"

    @property
    def table(self) -> tuple[str, str]:
        return "inet", f"sandbox_engine_{self.instance}"

    async def crash(self) -> list[Link]:
        """Have an engine take three links, the last without internet, and kill it."""
        engine = await asyncio.create_subprocess_exec(
            *[sys.executable, "-m", "tests.engine.crashing_network"],
            *[self.instance, str(self.directory)],
            cwd=Path(__file__).parents[2],
            stdout=subprocess.PIPE,
        )
        assert engine.stdout is not None
        links = json.loads(await engine.stdout.readline())
        engine.kill()
        await engine.wait()
        return [Link(**link) for link in links]

    def traces(self) -> dict[str, int]:
        """Count what the engine's links have left in the kernel and on the disk."""
        interfaces = [name for _, name in socket.if_nameindex() if self.instance in name]
        mounts = Path("/proc/self/mounts").read_text().count(f" {self.directory}/netns/")
        listed = json.loads(run("nft", "-j", "list", "table", *self.table))["nftables"]
        sets = [entry.get("map") or entry.get("set") for entry in listed]
        elements = {one["name"]: len(one.get("elem", ())) for one in sets if one}
        named = [one["name"] for entry in listed for one in entry.values() if "name" in one]
        return {
            "interfaces": len(interfaces),
            "mounts": mounts,
            "files": len(list((self.directory / "netns").iterdir())),
            "elements": sum(elements[name] for name in ("links", "policies", "connections")),
            "policies": len([name for name in named if link_prefix(self.instance) in name]),
        }


@asynccontextmanager
async def workplace() -> AsyncIterator[Workplace]:
    """Make an engine's directories, and have nothing left of the engine in the end."""
    place = Workplace(os.urandom(4).hex(), Path(tempfile.mkdtemp(prefix="network-")))
    try:
        yield place
    finally:
        async with place.network() as network:
            await network.destroy()
        shutil.rmtree(place.directory)


def run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def inside(netns: str, *command: str) -> str:
    """Run a program in a network namespace, as the host's root."""
    return run("nsenter", f"--net={netns}", *command)


def socket_in(netns: str, kind: int = socket.SOCK_STREAM) -> socket.socket:
    with visiting(netns):
        opened = socket.socket(socket.AF_INET, kind)
    opened.setblocking(False)
    return opened


class Datagrams:
    """What arrives at an address, where each datagram tells whence it was sent."""

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener

    def send(self, netns: str, *, source: str | None = None) -> None:
        """Send one from a namespace, if the kernel lets it out."""
        with socket_in(netns, socket.SOCK_DGRAM) as sender:
            if source is not None:
                sender.bind((source, 0))
            whence = netns if source is None else f"{netns} as {source}"
            with contextlib.suppress(PermissionError):
                sender.sendto(whence.encode(), self._listener.getsockname())

    async def next(self) -> str:
        async with asyncio.timeout(_ANSWER_SECONDS):
            return (await asyncio.get_running_loop().sock_recv(self._listener, 200)).decode()


@contextmanager
def datagrams_to(netns: str, address: str) -> Iterator[Datagrams]:
    """Listen on an address of a namespace."""
    with socket_in(netns, socket.SOCK_DGRAM) as listener:
        listener.bind((address, 0))
        yield Datagrams(listener)


@asynccontextmanager
async def server(netns: str, address: str) -> AsyncIterator[int]:
    """Run a server that tells callers what address they come from; yields its port."""

    async def tell(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(writer.get_extra_info("peername")[0].encode())
        writer.close()

    listener = socket_in(netns)
    listener.bind((address, 0))
    async with await asyncio.start_server(tell, sock=listener):
        yield listener.getsockname()[1]


async def call(netns: str, address: str, port: int, *, source: str | None = None) -> str:
    """Call such a server from a namespace, and return what it tells."""
    loop = asyncio.get_running_loop()
    with socket_in(netns) as caller:
        if source is not None:
            caller.bind((source, 0))
        async with asyncio.timeout(_ANSWER_SECONDS):
            await loop.sock_connect(caller, (address, port))
            return (await loop.sock_recv(caller, 100)).decode()


async def is_refused(netns: str, address: str, port: int) -> bool:
    """Tell whether a call is refused; one in the middle of which the rules change is neither."""
    try:
        await call(netns, address, port)
    except ConnectionRefusedError:
        return True
    except (ConnectionError, TimeoutError):
        pass
    return False


async def gets_through(netns: str, address: str, port: int, *, source: str | None = None) -> bool:
    """Call a server that may never hear of it."""
    with contextlib.suppress(TimeoutError, PermissionError):
        async with asyncio.timeout(_SILENCE_SECONDS):
            await call(netns, address, port, source=source)
            return True
    return False
