import asyncio
import secrets
from typing import Any

from harness import Kit, probe


async def place(kit: Kit) -> tuple[Any, str]:
    """Return the shared sandbox's files and a new directory."""
    files = (await kit.shared()).files
    directory = f"/home/user/{secrets.token_hex(4)}"
    await kit(files.make_dir, directory)
    return files, directory


@probe("files.write", "files.read")
async def write_and_read(kit: Kit) -> None:
    files, directory = await place(kit)
    await kit(files.write, f"{directory}/text", "grüße")
    assert await kit(files.read, f"{directory}/text") == "grüße"
    assert bytes(await kit(files.read, f"{directory}/text", format="bytes")) == "grüße".encode()


@probe("files.write_files")
async def write_files(kit: Kit) -> None:
    files, directory = await place(kit)
    entries = [{"path": f"{directory}/{name}", "data": name} for name in "ab"]
    await kit(files.write_files, entries)
    assert await kit(files.read, f"{directory}/b") == "b"


@probe("files.exists", "files.remove")
async def exists_and_remove(kit: Kit) -> None:
    files, directory = await place(kit)
    assert await kit(files.exists, directory)
    await kit(files.remove, directory)
    assert not await kit(files.exists, directory)


@probe("files.list", "files.make_dir")
async def list_directory(kit: Kit) -> None:
    files, directory = await place(kit)
    await kit(files.make_dir, f"{directory}/below/it")
    assert [one.name for one in await kit(files.list, directory)] == ["below"]


@probe("files.get_info")
async def get_info(kit: Kit) -> None:
    files, directory = await place(kit)
    await kit(files.write, f"{directory}/five", "12345")
    info = await kit(files.get_info, f"{directory}/five")
    assert (info.name, info.size, info.owner) == ("five", 5, "user")


@probe("files.rename")
async def rename(kit: Kit) -> None:
    files, directory = await place(kit)
    await kit(files.write, f"{directory}/old", "x")
    await kit(files.rename, f"{directory}/old", f"{directory}/new")
    assert [one.name for one in await kit(files.list, directory)] == ["new"]


@probe("files.watch_dir", "WatchHandle.stop", "WatchHandle.get_new_events")
async def watch(kit: Kit) -> None:
    files, directory = await place(kit)
    if kit.is_async:
        seen = asyncio.Event()
        handle = await kit(files.watch_dir, directory, lambda _: seen.set())
        await kit(files.write, f"{directory}/new", "x")
        await asyncio.wait_for(seen.wait(), 30)
    else:
        handle = await kit(files.watch_dir, directory)
        await kit(files.write, f"{directory}/new", "x")
        async with asyncio.timeout(30):
            while not handle.get_new_events():  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.1)
    await kit(handle.stop)
