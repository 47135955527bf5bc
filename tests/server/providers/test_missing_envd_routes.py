"""An envd that lacks a route, or a gateway that does not find the sandbox, is no missing process or file."""

from contextlib import aclosing

import pytest

from sandbox_server.domain.commands import TerminalSize
from sandbox_server.domain.errors import BackendUnavailable, PathNotFound
from sandbox_server.providers.protocol.errors import CallNotSupported, ProcessGone
from sandbox_server.providers.protocol.processes import NewProcess, ProcessSignal
from tests.server.support.fault_proxy import answer_with

pytestmark = pytest.mark.needs_engine

PROCESS = "POST /process.Process/"
FILESYSTEM = "POST /filesystem.Filesystem/"
ALWAYS = 1000
NO_ROUTE = [
    pytest.param(answer_with(404, "404 page not found\n", Content_Type="text/plain"), id="go-404"),
    pytest.param(
        answer_with(404, '{"code": 404, "message": "no"}', Content_Type="application/json"),
        id="json-404",
    ),
    pytest.param(answer_with(405), id="405"),
    pytest.param(answer_with(501), id="501"),
]


async def first_event(events):
    async with aclosing(events):
        return await anext(events)


async def first_change(watching):
    async with aclosing(await watching) as changes:
        return await anext(changes)


CALLS_OF_PROCESSES = {
    "Start": lambda one: first_event(one.start(NewProcess(args=["/bin/true"]))),
    "Connect": lambda one: first_event(one.connect("tag")),
    "List": lambda one: one.list(),
    "SendInput": lambda one: one.send_input("tag", b"x", terminal=False),
    "CloseStdin": lambda one: one.close_stdin("tag"),
    "SendSignal": lambda one: one.send_signal("tag", ProcessSignal.TERM),
    "Update": lambda one: one.resize("tag", TerminalSize(cols=80, rows=24)),
}
CALLS_OF_FILES = {
    "Stat": lambda one: one.find("/tmp"),
    "ListDir": lambda one: one.list_below("/tmp", depth=1, limit=1),
    "MakeDir": lambda one: one.make_directory("/tmp/new"),
    "Move": lambda one: one.move("/tmp/a", "/tmp/b"),
    "Remove": lambda one: one.remove("/tmp/a"),
    "WatchDir": lambda one: first_change(one.watch("/tmp", recursive=False)),
}


@pytest.fixture
async def through(backend_at, proxy, wanted):
    """Give a sandbox as it is reached through a gateway, with its backend."""
    backend = backend_at(proxy.url)
    return backend, await backend.create(wanted)


@pytest.mark.parametrize("missing", NO_ROUTE)
@pytest.mark.parametrize("call", CALLS_OF_PROCESSES)
async def test_missing_route__is_no_missing_process(through, proxy, call, missing):
    backend, access = through
    proxy.on(PROCESS + call, missing, times=ALWAYS)
    with pytest.raises(CallNotSupported, match=f"`{PROCESS}{call}`"):
        await CALLS_OF_PROCESSES[call](backend.processes(access))


@pytest.mark.parametrize("missing", NO_ROUTE)
@pytest.mark.parametrize("call", CALLS_OF_FILES)
async def test_missing_route__is_no_missing_file(through, proxy, call, missing):
    backend, access = through
    proxy.on(FILESYSTEM + call, missing, times=ALWAYS)
    with pytest.raises(CallNotSupported, match=f"`{FILESYSTEM}{call}`"):
        await CALLS_OF_FILES[call](backend.files(access))


@pytest.mark.parametrize("health", [404, 503])
async def test_gateway__a_404_says_nothing_about_processes_and_files(through, proxy, health):
    backend, access = through
    proxy.on(PROCESS, answer_with(404, "no such sandbox"), times=ALWAYS)
    proxy.on(FILESYSTEM, answer_with(404, "no such sandbox"), times=ALWAYS)
    proxy.on("GET /health", answer_with(health), times=ALWAYS)
    with pytest.raises(BackendUnavailable):
        await backend.processes(access).close_stdin("tag")
    with pytest.raises(BackendUnavailable):
        await backend.files(access).find("/tmp")


async def test_missing_file__only_the_sandbox_can_report_it(through, proxy):
    backend, access = through
    transfers = backend.transfers(access)
    proxy.on("GET /files", answer_with(404, "404 page not found\n"))
    with pytest.raises(BackendUnavailable, match="answered 404"):
        await transfers.open("/etc/hostname")
    with pytest.raises(PathNotFound):
        await transfers.open("/nothing/there")


async def test_missing_file__a_real_one_is_reported(through):
    backend, access = through
    with pytest.raises(ProcessGone):
        await backend.processes(access).close_stdin("never-there")
    assert await backend.files(access).find("/nothing/there") is None


async def test_endless_error__is_not_read_to_the_end(backend_at, proxy, wanted):
    backend = backend_at(proxy.url)
    access = await backend.create(wanted)

    async def endless(exchange):
        await exchange.answer(b"HTTP/1.1 404 No\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            await exchange.answer(b"10000\r\n" + bytes(0x10000) + b"\r\n")

    proxy.on(PROCESS, endless)
    with pytest.raises(CallNotSupported):
        await backend.processes(access).list()
