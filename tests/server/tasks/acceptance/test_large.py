"""Repositories and work of sizes that a simple solution does not survive."""

import os
import shutil
from contextlib import asynccontextmanager

import pytest

from tests.server.forges.support.git_server import git
from tests.server.support.full_server import serving_outside
from tests.server.tasks.support.pushed_forge import pushed_forge_at
from tests.server.tasks.support.task_client import TaskClient

# They write and send gigabytes, or a hundred thousand files.
pytestmark = [pytest.mark.needs_engine, pytest.mark.slow, pytest.mark.timeout(900)]

PATIENCE_S = 600
MANY = 100_000
VERSIONS, VERSION_MB = 20, 100
WRITE = "echo two >> README.md && git commit -qam 'feat: add a line'"


@pytest.fixture
def large_forge(tmp_path):
    """Run a forge whose repository has a history of 2 GB that does not compress."""
    with pushed_forge_at(tmp_path / "forge") as forge:
        _add_versions(forge.path, tmp_path / "forge" / "clone")
        yield forge


@pytest.fixture
def serving_large(database_url, engine, tmp_path, large_forge):
    """Serve with a limit of mirrors, and call the API."""
    (tmp_path / "state").mkdir()

    @asynccontextmanager
    async def serve(*, mirror_gb):
        settings = {"forge_hosts": (large_forge.server.url,), "mirror_gb": mirror_gb}
        async with (
            serving_outside(database_url, engine, state_dir=tmp_path / "state", **settings) as one,
            one.api() as api,
        ):
            client = TaskClient(api, one.components)
            await client.put_forge(**large_forge.forge("gitlab"))
            await client.add_repository()
            yield client
            await client.cancel_all()

    return serve


def _add_versions(bare, clone):
    for path in (clone, bare):
        # Large blobs are neither compressed nor compared with each other, which would take minutes.
        git("-C", str(path), "config", "core.bigFileThreshold", "1m")
        git("-C", str(path), "config", "core.compression", "0")
    for version in range(VERSIONS):
        _write_random(clone / "model.bin", VERSION_MB)
        _commit(clone, f"Version {version}")
    (clone / "model.bin").unlink()
    head = _commit(clone, "Remove the model")
    shutil.copytree(clone / ".git" / "objects", bare / "objects", dirs_exist_ok=True)
    git("-C", str(bare), "update-ref", "refs/heads/main", head)
    shutil.rmtree(clone)


def _write_random(path, megabytes):
    with path.open("wb") as file:
        for _ in range(megabytes):
            file.write(os.urandom(2**20))


def _commit(clone, message):
    git("-C", str(clone), "add", "--all")
    git("-C", str(clone), "commit", "--quiet", "--message", message)
    return git("-C", str(clone), "rev-parse", "HEAD")


async def test_large__a_hundred_thousand_new_files_are_saved_and_published(tasks, forge_world):
    await tasks.add_repository()
    split = f"mkdir many && cd many && seq {MANY} | split -l 1 -a 6 -d - && cd .."
    task = await tasks.create(f"{split} && git add . && git commit -qm 'feat: add many files'")
    done = await tasks.until(task["id"], "in-review", timeout=PATIENCE_S)
    path = forge_world.git.directory / f"{forge_world.repository}.git"
    files = git("-C", str(path), "ls-tree", "-r", "--name-only", done["published_sha"], "many/")
    assert len(files.splitlines()) == MANY
    assert (await tasks.items(task["id"], "saves"))[-1]["head_sha"] == done["published_sha"]


async def test_large__work_on_a_repository_of_two_gigabytes_is_published(
    serving_large, large_forge
):
    async with serving_large(mirror_gb=20) as tasks:
        task = await tasks.create(WRITE)
        done = await tasks.until(task["id"], "done", timeout=PATIENCE_S)
    assert large_forge.head(done["branch"]) == done["published_sha"]
    new = git("-C", str(large_forge.path), "rev-list", "--count", f"main..{done['branch']}")
    assert new == "1"


async def test_large__a_repository_above_the_limit_of_mirrors_waits_with_a_reason(
    serving_large,
):
    async with serving_large(mirror_gb=1) as tasks:
        task = await tasks.create(WRITE)
        waiting = await tasks.until(task["id"], "waiting-for-user", timeout=PATIENCE_S)
        assert waiting["waits_for"]["kind"] == "forge"
        assert "--mirror-gb" in waiting["stage_reason"]
