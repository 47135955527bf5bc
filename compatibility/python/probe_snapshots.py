from harness import Kit, probe


@probe("Sandbox.create_snapshot")
async def create_snapshot(kit: Kit) -> None:
    sandbox = await kit.sandbox()
    await kit(sandbox.files.write, "kept.txt", "kept")
    snapshot = await kit(sandbox.create_snapshot)
    copy = await kit.sandbox(snapshot.snapshot_id)
    assert await kit(copy.files.read, "kept.txt") == "kept"


@probe("Sandbox.list_snapshots", "SnapshotPaginator.next_items")
async def list_snapshots(kit: Kit) -> None:
    sandbox = await kit.sandbox()
    snapshot = await kit(sandbox.create_snapshot)
    pages = sandbox.list_snapshots()
    found = []
    while pages.has_next:
        found += await kit(pages.next_items)
    assert [one.snapshot_id for one in found] == [snapshot.snapshot_id]


@probe("Sandbox.delete_snapshot")
async def delete_snapshot(kit: Kit) -> None:
    sandbox = await kit.sandbox()
    snapshot = await kit(sandbox.create_snapshot)
    assert await kit(kit.Sandbox.delete_snapshot, snapshot.snapshot_id)
    assert not await kit(kit.Sandbox.delete_snapshot, snapshot.snapshot_id)


@probe("Sandbox.fork")
async def fork(kit: Kit) -> None:
    sandbox = await kit.sandbox()
    await kit(sandbox.files.write, "shared.txt", "shared")
    forks = await kit(sandbox.fork, count=2)
    kit.made += forks
    texts = [await kit(one.files.read, "shared.txt") for one in forks]
    assert texts == ["shared", "shared"]
    assert len({sandbox.sandbox_id, *(one.sandbox_id for one in forks)}) == 3
