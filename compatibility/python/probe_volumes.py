import secrets
from typing import Any

from harness import Kit, probe


async def volume(kit: Kit) -> Any:
    """Create a volume."""
    return await kit(kit.Volume.create, f"probe-{secrets.token_hex(4)}")


@probe("Volume.create", "Volume.connect", "Volume.destroy", "Volume.list", "Volume.get_info")
async def keep(kit: Kit) -> None:
    made = await volume(kit)
    assert (await kit(kit.Volume.connect, made.volume_id)).name == made.name
    assert (await kit(kit.Volume.get_info, made.volume_id)).volume_id == made.volume_id
    assert made.volume_id in [one.volume_id for one in await kit(kit.Volume.list)]
    assert await kit(kit.Volume.destroy, made.volume_id)


@probe("Volume.write_file", "Volume.read_file", "Volume.exists", "Volume.remove")
async def content(kit: Kit) -> None:
    made = await volume(kit)
    await kit(made.write_file, "/note", "kept")
    sandbox = await kit.sandbox(volume_mounts={"/mnt/data": made})
    assert await kit(sandbox.files.read, "/mnt/data/note") == "kept"
    await kit(sandbox.commands.run, "echo more >> /mnt/data/note", user="root")
    assert await kit(made.read_file, "/note") == "keptmore\n"
    await kit(made.remove, "/note")
    assert not await kit(made.exists, "/note")
    await kit.clean()
    await kit(kit.Volume.destroy, made.volume_id)


@probe("Volume.make_dir", "Volume.update_metadata")
async def directories(kit: Kit) -> None:
    made = await volume(kit)
    await kit(made.make_dir, "/below")
    changed = await kit(made.update_metadata, "/below", mode=0o700)
    assert changed.mode & 0o777 == 0o700
    await kit(kit.Volume.destroy, made.volume_id)


@probe("Secret.create")
async def create_secret(kit: Kit) -> None:
    await kit(kit.Secret.create, "name", "value")


@probe("Secret.get_info")
async def get_secret(kit: Kit) -> None:
    await kit(kit.Secret.get_info, "name")


@probe("Secret.update")
async def update_secret(kit: Kit) -> None:
    await kit(kit.Secret.update, "name", "value")


@probe("Secret.exists")
async def look_for_secret(kit: Kit) -> None:
    await kit(kit.Secret.exists, "name")


@probe("Secret.destroy")
async def destroy_secret(kit: Kit) -> None:
    await kit(kit.Secret.destroy, "name")


@probe("Secret.list", "SecretPaginator.next_items")
async def list_secrets(kit: Kit) -> None:
    pages = await kit(kit.Secret.list)
    await kit(pages.next_items)


@probe("Secret.fill")
async def fill(kit: Kit) -> None:
    rules = {"example.org": [{"transform": {"headers": {"X": kit.Secret.fill("name")}}}]}
    await kit.sandbox(network={"allow_out": ["0.0.0.0/0"], "rules": rules})


@probe("Secret.iam_token")
async def iam_token(kit: Kit) -> None:
    token = kit.Secret.iam_token(audience="example.org", token_type="JWT-SVID")  # noqa: S106
    await kit.sandbox(iam={"tokens": {"t": token}})
