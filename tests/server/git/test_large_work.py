"""Large files of Git LFS in saves: taken out of a sandbox with git-lfs, and put back into another one."""

import os
from datetime import timedelta
from pathlib import Path

import pytest

from sandbox_server.domain.errors import SaveTooLarge
from sandbox_server.git.checkouts import Checkouts, Rung
from sandbox_server.git.inside import SEAL
from sandbox_server.git.lfs.fetching import LargeFileFetcher
from sandbox_server.git.lfs.inside import Kept, LargeFilesInside
from sandbox_server.git.lfs.server import LfsServer
from sandbox_server.git.work import SandboxWork
from sandbox_server.sandboxes.sandbox_access import SandboxAccess
from tests.server.git.conftest import DIRECTORY, NAME
from tests.server.git.lfs_client import GIT_LFS, needs_git_lfs
from tests.server.git.lfs_store import oid_of, pointer_of

pytestmark = [pytest.mark.needs_engine, needs_git_lfs]

IN = f"cd {DIRECTORY} &&"
COMMIT = (
    f"{IN} git lfs track '*.bin' >/dev/null && head -c 300000 /dev/urandom >a.bin && "
    "git add -A && git commit -qm 'feat: a' && head -c 200000 /dev/urandom >b.bin"
)


async def install(used):
    """Put git-lfs into a sandbox, as a template with it has it."""
    content = Path(GIT_LFS).read_bytes()

    async def parts():
        yield content

    transfers = used.backend.transfers(used.access, user="root")
    await transfers.upload("/usr/local/bin/git-lfs", parts(), length=len(content))
    inside = used.backend.inside(used.access)
    command = "chmod 755 /usr/local/bin/git-lfs && git lfs install --system --skip-repo"
    done = await inside.run_command(command, user="root", timeout=timedelta(seconds=60))
    assert not done.exit_code, done.output


@pytest.fixture
async def with_lfs(used):
    await install(used)


@pytest.fixture
async def take(with_lfs, checked_out, used):
    """Take the work out of the sandbox, as saves do."""

    async def take(*, known_mark=None, kept=None):
        async def find_kept(_objects):
            return kept or Kept()

        return await SandboxWork().take(
            used, DIRECTORY, checked_out.base_sha, known_mark, find_kept=find_kept
        )

    return take


async def test_large_work__contents_come_back_in_another_sandbox(
    take, shell, living, checkouts, request_of, checked_out
):
    await shell(COMMIT)
    taken = await take()
    sums = await shell(f"{IN} sha256sum a.bin b.bin")
    committed, loose = (line.split()[0] for line in sums.splitlines())
    assert {*taken.contents} == {committed, loose} == {each.oid for each in taken.large}
    assert (len(taken.bundle) < 100_000, taken.size > 500_000) == (True, True)
    other = SandboxAccess(living.backends, living.vault).usable(
        await living.row(await living.started())
    )
    await install(other)
    await checkouts.check_out(other, request_of(base_sha=taken.base_sha))
    work = SandboxWork()
    for oid, content in taken.contents.items():
        await work.restore_large_file(other, DIRECTORY, oid, content)
    await work.restore(other, DIRECTORY, taken.bundle)
    command = f"{IN} sha256sum a.bin b.bin && git status --porcelain"
    done = await other.backend.inside(other.access).run_command(
        command, timeout=timedelta(seconds=60)
    )
    assert done.output.decode().strip() == f"{sums}\n?? b.bin"


async def test_large_work__what_the_forge_has_is_fetched_after_a_restore(
    take, shell, used, repository, fetcher, forge
):
    await shell(COMMIT)
    taken = await take()
    committed = max(taken.contents, key=lambda oid: len(taken.contents[oid]))
    forge.lfs.add(taken.contents[committed])
    await shell(f"{IN} rm -rf .git/lfs/objects && git show HEAD:a.bin >a.bin && git add .")
    inside = LargeFilesInside(used, DIRECTORY)
    named = await inside.list_new(taken.head_sha, taken.base_sha)
    assert [each.oid for each in named] == [committed]
    reason = await fetcher().fetch(inside, repository, named)
    assert (await shell(f"{IN} sha256sum a.bin")).split()[0] == committed
    assert reason is None


async def test_large_work__what_is_kept_is_not_taken_again(take, shell):
    await shell(COMMIT)
    first = await take()
    [here, at_forge] = [each.oid for each in first.large]
    again = await take(kept=Kept(here={here}, at_forge={at_forge}))
    assert (again.contents, [each.oid for each in again.large]) == ({}, [here])
    assert await take(known_mark=first.mark) is None


async def test_large_work__more_than_a_save_holds_is_refused_before_it_is_read(take, shell):
    await shell(
        f"{IN} git lfs track '*.bin' && head -c 70000000 /dev/zero >a.bin && git add -A && git commit -qm x"
    )
    with pytest.raises(SaveTooLarge, match="of Git LFS \\(66 MiB\\)"):
        await take()


@pytest.fixture
def film(seeded, forge):
    """Add a large file to the repository and to the forge's store."""
    content = os.urandom(400_000)
    seeded.write(".gitattributes", "*.mp4 filter=lfs diff=lfs merge=lfs -text\n")
    seeded.write("films/a.mp4", pointer_of(content))
    seeded.commit("feat: film")
    seeded.push(forge.path(NAME))
    forge.lfs.add(content)
    return content


@pytest.fixture
def fetcher(forge):
    def make(limit=2**20):
        async def credentials(repository, _access):
            return forge.credential(repository.full_name)

        return LargeFileFetcher(LfsServer(), credentials, limit=limit)

    return make


@pytest.fixture
def fetching(mirrors, fetcher):
    """Check out with large files up to a limit."""

    def make(limit=2**20):
        return Checkouts(mirrors, large_files=fetcher(limit))

    return make


async def seal(used):
    """Do what a preparation does before its snapshot is taken."""
    inside = used.backend.inside(used.access)
    envs = {"TARGET": DIRECTORY}
    done = await inside.run_command(SEAL, envs=envs, timeout=timedelta(seconds=60))
    assert not done.exit_code, done.output


async def test_checkout__has_the_contents_of_large_files_and_a_clean_status(
    film, fetching, used, with_lfs, request_of, shell, seeded, forge
):
    done = await fetching().check_out(used, request_of())
    assert done.pointers is None
    assert (await shell(f"{IN} sha256sum films/a.mp4")).split()[0] == oid_of(film)
    assert await shell(f"{IN} git status --porcelain --branch") == "## task-1"
    await seal(used)
    repository = request_of().repository
    repository.prepared_sha, repository.prepared_snapshot = done.base_sha, used.row.template
    later = os.urandom(500_000)
    seeded.write("films/b.mp4", pointer_of(later))
    seeded.commit("feat: another film")
    seeded.push(forge.path(NAME))
    forge.lfs.add(later)
    forge.lfs.contents.pop(oid_of(film))
    done = await fetching().check_out(used, request_of(branch="task-2"), max_age=timedelta())
    sums = (await shell(f"{IN} sha256sum films/*.mp4")).splitlines()
    assert [line.split()[0] for line in sums] == [oid_of(film), oid_of(later)]
    assert (done.pointers, await shell(f"{IN} git status --porcelain")) == (None, "")
    assert done.rung is Rung.SNAPSHOT


async def test_checkout__says_why_large_files_stay_pointers(
    film, fetching, used, with_lfs, request_of, shell, forge, seeded
):
    done = await fetching(limit=399_999).check_out(used, request_of())
    assert done.pointers is not None
    assert "1 large files (Git LFS) stay pointers: they have 0 MiB" in done.pointers
    assert await shell(f"{IN} cat films/a.mp4") == pointer_of(film).strip()
    forge.lfs.contents.clear()
    done = await fetching().check_out(used, request_of())
    assert done.pointers is not None
    assert "Object does not exist" in done.pointers
    seeded.write(".lfsconfig", "[lfs]\n\turl = https://me:secret@lfs.example.org/acme\n")
    seeded.commit("ci: keep films elsewhere")
    seeded.push(forge.path(NAME))
    asked = len(forge.lfs.tokens)
    done = await fetching().check_out(used, request_of(branch="task-2"), max_age=timedelta())
    assert done.pointers is not None
    assert "names lfs.example.org, which is not its forge" in done.pointers
    assert len(forge.lfs.tokens) == asked
    assert await shell(f"{IN} git status --porcelain --branch") == "## task-2"


async def test_checkout__without_git_lfs_has_pointers(film, fetching, used, request_of, shell):
    done = await fetching().check_out(used, request_of())
    assert (done.pointers, await shell(f"{IN} cat films/a.mp4")) == (None, pointer_of(film).strip())
