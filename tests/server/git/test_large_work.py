"""Large files of Git LFS in saves: taken out of a sandbox with git-lfs, and put back into another one."""

from datetime import timedelta
from pathlib import Path

import pytest

from sandbox_server.domain.errors import SaveTooLarge
from sandbox_server.git.lfs.inside import Kept
from sandbox_server.git.work import SandboxWork
from sandbox_server.sandboxes.sandbox_access import SandboxAccess
from tests.server.git.conftest import DIRECTORY
from tests.server.git.lfs_client import GIT_LFS, needs_git_lfs

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
