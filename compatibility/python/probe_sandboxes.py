import asyncio
import urllib.request
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Any

from harness import Kit, probe

UNKNOWN = "i0000000000000000000"


async def until(condition: Callable[[], Awaitable[Any]]) -> Any:
    """Wait until the condition holds."""
    async with asyncio.timeout(60):
        while not (result := await condition()):  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.1)
    return result


@probe("Sandbox.create")
async def create(kit: Kit) -> None:
    sandbox = await kit.sandbox(metadata={"of": "probe"}, envs={"GREETING": "hello"})
    result = await kit(sandbox.commands.run, "echo $GREETING from $(id -un)")
    assert result.stdout == "hello from user\n"


@probe("Sandbox.connect")
async def connect(kit: Kit) -> None:
    first = await kit.sandbox()
    second = await kit(kit.Sandbox.connect, first.sandbox_id)
    assert (await kit(second.commands.run, "echo again")).stdout == "again\n"


@probe("Sandbox.kill")
async def kill(kit: Kit) -> None:
    sandbox = await kit.sandbox()
    await kit(sandbox.kill)
    assert not await kit(sandbox.is_running)


@probe("Sandbox.list", "SandboxPaginator.next_items")
async def list_them(kit: Kit) -> None:
    sandbox = await kit.sandbox(metadata={"probe": "list"})
    listed = await kit(kit.Sandbox.list)
    if hasattr(listed, "next_items"):
        found = []
        while listed.has_next:
            found += await kit(listed.next_items)
        listed = found
    assert sandbox.sandbox_id in [one.sandbox_id for one in listed]


@probe("Sandbox.get_info")
async def get_info(kit: Kit) -> None:
    sandbox = await kit.sandbox(metadata={"probe": "info"})
    info = await kit(sandbox.get_info)
    assert (info.sandbox_id, info.metadata) == (sandbox.sandbox_id, {"probe": "info"})


@probe("Sandbox.get_metrics")
async def get_metrics(kit: Kit) -> None:
    sandbox = await kit.shared()
    [*_, newest] = await kit(sandbox.get_metrics)
    assert newest.cpu_count == 2
    assert 0 < newest.mem_used < newest.mem_total


@probe("Sandbox.set_timeout")
async def set_timeout(kit: Kit) -> None:
    sandbox = await kit.sandbox()
    await kit(sandbox.set_timeout, 3000)
    info = await kit(sandbox.get_info)
    assert info.end_at > datetime.now(info.end_at.tzinfo) + timedelta(seconds=2000)


@probe("Sandbox.is_running")
async def is_running(kit: Kit) -> None:
    sandbox = await kit.sandbox()
    assert await kit(sandbox.is_running)
    await kit(sandbox.kill)
    assert not await kit(sandbox.is_running)


@probe("Sandbox.pause")
async def pause(kit: Kit) -> None:
    await _pause(kit, "pause")


@probe("Sandbox.beta_pause")
async def beta_pause(kit: Kit) -> None:
    await _pause(kit, "beta_pause")


async def _pause(kit: Kit, method: str) -> None:
    sandbox = await kit.sandbox()
    command = await kit(sandbox.commands.run, "sleep 600", background=True)
    await kit(getattr(sandbox, method))
    assert not await kit(sandbox.is_running)
    resumed = await kit(kit.Sandbox.connect, sandbox.sandbox_id)
    assert command.pid in [one.pid for one in await kit(resumed.commands.list)]


@probe("Sandbox.beta_create")
async def beta_create(kit: Kit) -> None:
    sandbox = await kit(kit.Sandbox.beta_create, timeout=300, auto_pause=True)
    kit.made.append(sandbox)
    assert (await kit(sandbox.commands.run, "echo made")).stdout == "made\n"


@probe("Sandbox.get_host")
async def get_host(kit: Kit) -> None:
    sandbox = await kit.shared()
    assert sandbox.get_host(3000).startswith(f"3000-{sandbox.sandbox_id}")


@probe("Sandbox.download_url", "Sandbox.upload_url")
async def urls(kit: Kit) -> None:
    sandbox = await kit.shared()
    boundary = "frontier"
    part = 'Content-Disposition: form-data; name="file"; filename="x"\r\n\r\nby URL'
    upload = urllib.request.Request(  # noqa: S310 - the engine's own address
        sandbox.upload_url("signed.txt"),
        data=f"--{boundary}\r\n{part}\r\n--{boundary}--\r\n".encode(),
        headers={"Content-Type": f"multipart/form-data; boundary={boundary}"},
    )
    urllib.request.urlopen(upload).close()  # noqa: S310, ASYNC210
    with urllib.request.urlopen(sandbox.download_url("signed.txt")) as answer:  # noqa: S310, ASYNC210
        assert answer.read() == b"by URL"


@probe("Sandbox.get_mcp_url")
async def get_mcp_url(kit: Kit) -> None:
    sandbox = await kit.shared()
    assert sandbox.sandbox_id in sandbox.get_mcp_url()


@probe("Sandbox.get_mcp_token")
async def get_mcp_token(kit: Kit) -> None:
    sandbox = await kit.shared()
    await kit(sandbox.files.write, "/etc/mcp-gateway/.token", "token", user="root")
    assert await kit(sandbox.get_mcp_token) == "token"


@probe("Sandbox.update_network")
async def update_network(kit: Kit) -> None:
    sandbox = await kit.sandbox()
    await kit(sandbox.update_network, {"deny_out": ["0.0.0.0/0"]})
    info = await kit(sandbox.get_info)
    assert "0.0.0.0/0" in str(info.network)
