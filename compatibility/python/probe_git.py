import secrets
from typing import Any

from harness import Kit, probe


async def repository(kit: Kit) -> tuple[Any, str]:
    """Make a repository with one commit."""
    sandbox = await kit.shared()
    path = f"/home/user/{secrets.token_hex(4)}"
    await kit(sandbox.git.init, path, initial_branch="main")
    await kit(sandbox.files.write, f"{path}/file", "first")
    await kit(sandbox.git.add, path)
    await _commit(kit, sandbox, path)
    return sandbox, path


async def _commit(kit: Kit, sandbox: Any, path: str) -> None:
    who = {"author_name": "A", "author_email": "a@example.org"}
    await kit(sandbox.git.commit, path, "change", **who)


@probe("git.init", "git.add", "git.commit", "git.status")
async def commit(kit: Kit) -> None:
    sandbox, path = await repository(kit)
    await kit(sandbox.files.write, f"{path}/other", "x")
    assert [one.name for one in (await kit(sandbox.git.status, path)).file_status] == ["other"]


@probe("git.branches", "git.create_branch", "git.checkout_branch", "git.delete_branch")
async def branches(kit: Kit) -> None:
    sandbox, path = await repository(kit)
    await kit(sandbox.git.create_branch, path, "side")
    await kit(sandbox.git.checkout_branch, path, "main")
    found = await kit(sandbox.git.branches, path)
    assert (sorted(found.branches), found.current_branch) == (["main", "side"], "main")
    await kit(sandbox.git.delete_branch, path, "side")
    assert (await kit(sandbox.git.branches, path)).branches == ["main"]


@probe("git.clone", "git.push", "git.pull")
async def remotes(kit: Kit) -> None:
    sandbox, path = await repository(kit)
    bare, copy = f"{path}.git", f"{path}-copy"
    await kit(sandbox.commands.run, f"git clone -q --bare {path} {bare}")
    await kit(sandbox.git.clone, f"file://{bare}", path=copy)
    await kit(sandbox.files.write, f"{copy}/file", "second")
    await kit(sandbox.git.add, copy)
    await _commit(kit, sandbox, copy)
    await kit(sandbox.git.push, copy, remote="origin", branch="main")
    await kit(sandbox.git.remote_add, path, "origin", f"file://{bare}")
    await kit(sandbox.git.pull, path, remote="origin", branch="main")
    assert await kit(sandbox.files.read, f"{path}/file") == "second"


@probe("git.remote_add", "git.remote_get")
async def remote(kit: Kit) -> None:
    sandbox, path = await repository(kit)
    await kit(sandbox.git.remote_add, path, "origin", "https://example.org/r.git")
    if hasattr(sandbox.git, "remote_get"):
        assert await kit(sandbox.git.remote_get, path, "origin") == "https://example.org/r.git"


@probe("git.reset", "git.restore")
async def undo(kit: Kit) -> None:
    sandbox, path = await repository(kit)
    await kit(sandbox.files.write, f"{path}/file", "changed")
    await kit(sandbox.git.restore, path, ["file"])
    assert await kit(sandbox.files.read, f"{path}/file") == "first"
    await kit(sandbox.files.write, f"{path}/file", "changed")
    await kit(sandbox.git.reset, path, mode="hard")
    assert await kit(sandbox.files.read, f"{path}/file") == "first"


@probe("git.set_config", "git.get_config", "git.configure_user")
async def config(kit: Kit) -> None:
    sandbox = await kit.shared()
    await kit(sandbox.git.set_config, "pull.rebase", "true")
    assert await kit(sandbox.git.get_config, "pull.rebase") == "true"
    await kit(sandbox.git.configure_user, "Ada", "ada@example.org")
    assert await kit(sandbox.git.get_config, "user.name") == "Ada"


@probe("git.dangerously_authenticate")
async def authenticate(kit: Kit) -> None:
    sandbox = await kit.sandbox()
    await kit(sandbox.git.dangerously_authenticate, "ada", "secret", host="example.org")
    kept = await kit(sandbox.commands.run, "cat ~/.git-credentials")
    assert "ada:secret@example.org" in kept.stdout
