import os
from datetime import timedelta

import pytest

from sandbox_server.domain.errors import (
    CheckoutFailed,
    CheckoutRefused,
    CommitNotFound,
    DiskFull,
    RemoteUnreachable,
)
from sandbox_server.git.checkouts import Checkouts, Rung
from sandbox_server.git.inside import SEAL
from tests.server.git.conftest import DIRECTORY, NAME, NOW
from tests.server.git.git_server import PASSWORD

IN = f"cd {DIRECTORY} &&"
MINUTE = timedelta(minutes=1)


async def test_a_checkout_has_the_branch_the_history_and_a_clean_status(
    checked_out, shell, seeded, repository
):
    assert checked_out.rung is Rung.PACKS
    assert checked_out.base_sha == seeded.git("rev-parse", "main")
    assert await shell(f"{IN} git status --porcelain --branch") == "## task-1"
    assert await shell(f"{IN} git log --format=%s") == "docs: say more\nfeat: count\nfeat: begin"
    assert await shell(f"{IN} git rev-parse HEAD origin/main") == "\n".join(
        [checked_out.base_sha] * 2
    )
    assert await shell(f"{IN} git branch --remotes --format='%(refname)'") == (
        "refs/remotes/origin/HEAD\nrefs/remotes/origin/main\nrefs/remotes/origin/other"
    )
    assert await shell(f"{IN} git tag") == "v1"
    assert await shell(f"{IN} git config user.email") == "ada@example.org"
    assert await shell(f"{IN} git remote get-url origin") == repository.url
    assert (
        await shell(f"{IN} git config remote.origin.fetch") == "+refs/heads/*:refs/remotes/origin/*"
    )
    assert await shell(f"{IN} git fsck --strict 2>&1") == ""
    assert await shell(f"{IN} git commit --allow-empty -qm x && git log -1 --format=%an") == "Ada"


async def test_no_credential_enters_the_sandbox(checked_out, shell):
    await shell(f"grep -rs '{PASSWORD}' {DIRECTORY} /tmp /home/user", fails=True)


async def test_a_repository_above_the_limit_is_checked_out_without_its_history(
    mirrors, used, request_of, shell, seeded
):
    done = await Checkouts(mirrors, full_history=0).check_out(used, request_of())
    assert done.rung is Rung.SHALLOW
    assert await shell(f"{IN} git log --format=%s") == "docs: say more"
    assert await shell(f"{IN} git status --porcelain --branch") == "## task-1"
    assert await shell(f"{IN} git rev-parse origin/main") == seeded.git("rev-parse", "main")
    assert await shell(f"{IN} git fsck 2>&1") == ""


async def test_a_checkout_can_start_from_an_older_commit(
    checkouts, used, request_of, shell, seeded
):
    base = seeded.git("rev-parse", "main~1")
    done = await checkouts.check_out(used, request_of(base_sha=base))
    assert done.base_sha == base
    assert await shell(f"{IN} git rev-parse HEAD") == base
    with pytest.raises(CommitNotFound):
        await checkouts.check_out(used, request_of(base_sha="0" * 40))


async def test_the_index_of_many_files_is_younger_than_all_of_them(
    checkouts, used, request_of, shell, seeded, forge
):
    # Git compares the contents of files of the second in which it wrote the index, at each look.
    seeded.commit(
        "feat: many", **{f"many___file_{number:05}__txt": "x\n" for number in range(7000)}
    )
    seeded.push(forge.path(NAME))
    await checkouts.check_out(used, request_of(), max_age=NOW)
    newest = "find . -path ./.git -prune -o -type f -printf '%T@\\n' | sort -n | tail -n 1"
    index, file = (await shell(f"{IN} stat -c %Y .git/index && {newest}")).split()
    assert int(index) > int(float(file))
    assert await shell(f"{IN} git status --porcelain") == ""


async def test_a_second_checkout_of_the_same_branch_touches_nothing(
    checked_out, checkouts, used, request_of, shell
):
    await shell(f"{IN} echo work >work.txt && git switch -qc elsewhere")
    again = await checkouts.check_out(used, request_of())
    assert (again.rung, again.base_sha) == (Rung.PRESENT, checked_out.base_sha)
    assert await shell(f"{IN} git status --porcelain --branch") == "## elsewhere\n?? work.txt"


@pytest.mark.parametrize(
    "left",
    [
        "true",
        "cd .git-checkout && echo x >objects/pack/pack-x.pack",
        "git --git-dir=.git-checkout --work-tree=. checkout -q -b task-1 HEAD 2>&1; echo half >README.md; mkdir src",
    ],
)
async def test_a_checkout_that_was_interrupted_is_made_anew(
    checkouts, used, request_of, shell, left
):
    await shell(f"git init -q --bare {DIRECTORY}/.git-checkout && {IN} {{ {left}; }}")
    await checkouts.check_out(used, request_of())
    assert await shell(f"{IN} git status --porcelain --branch") == "## task-1"
    assert await shell(f"{IN} git fsck 2>&1 && ls -A") == ".git\nREADME.md\nsrc"


async def test_a_checkout_of_another_branch_is_updated_and_keeps_what_is_ignored(
    checked_out, checkouts, used, request_of, shell, seeded, forge
):
    await shell(
        f"{IN} echo built >built.o && echo '*.o' >.git/info/exclude && echo dirty >README.md"
    )
    new = seeded.commit("feat: go on", c__txt="c\n")
    seeded.push(forge.path(NAME))
    done = await checkouts.check_out(used, request_of(branch="task-2"), max_age=NOW)
    assert (done.rung, done.base_sha) == (Rung.SNAPSHOT, new)
    assert await shell(f"{IN} git status --porcelain --branch") == "## task-2"
    assert await shell(f"{IN} cat built.o c.txt") == "built\nc"
    assert await shell(f"{IN} git branch --format='%(refname:short)'") == "task-2"
    assert await shell(f"{IN} git rev-parse origin/main") == new
    assert await shell(f"{IN} git fsck 2>&1") == ""


async def test_a_sandbox_of_a_prepared_snapshot_looks_at_changed_files_only(
    checked_out, checkouts, used, request_of, shell, seeded, forge, repository
):
    repository.prepared_snapshot = used.row.template
    repository.prepared_sha = checked_out.base_sha
    inside = used.backend.inside(used.access)
    sealed = await inside.run_command(SEAL, envs={"TARGET": DIRECTORY}, timeout=MINUTE)
    assert sealed.exit_code == 0
    new = seeded.commit("feat: go on", c__txt="c\n")
    seeded.push(forge.path(NAME))
    done = await checkouts.check_out(used, request_of(branch="task-2"), max_age=NOW)
    assert (done.rung, done.base_sha) == (Rung.SNAPSHOT, new)
    assert await shell(f"{IN} git status --porcelain --branch") == "## task-2"
    assert await shell(f"{IN} git branch --format='%(refname:short)'") == "task-2"
    assert "to task-2" not in await shell(f"{IN} git reflog HEAD")
    again = await checkouts.check_out(used, request_of(branch="task-2"), max_age=NOW)
    assert (again.rung, again.base_sha) == (Rung.PRESENT, new)


async def test_a_shallow_checkout_is_updated_by_one_commit(
    mirrors, used, request_of, shell, seeded, forge, repository
):
    large = Checkouts(mirrors, full_history=0)
    await large.check_out(used, request_of())
    seeded.commit("feat: go on", c__txt="c\n")
    new = seeded.commit("fix: restore a file", README__md="# Widgets\n")
    seeded.push(forge.path(NAME))
    done = await large.check_out(used, request_of(branch="task-2"), max_age=NOW)
    assert (done.rung, done.base_sha) == (Rung.SNAPSHOT, new)
    assert await shell(f"{IN} git status --porcelain --branch") == "## task-2"
    assert await shell(f"{IN} git log --format=%s") == "fix: restore a file"
    assert await shell(f"{IN} git fsck 2>&1") == ""


async def test_a_directory_with_files_is_left_alone(checkouts, used, request_of, shell):
    await shell(f"mkdir {DIRECTORY} && echo mine >{DIRECTORY}/mine.txt")
    with pytest.raises(CheckoutRefused, match="not empty"):
        await checkouts.check_out(used, request_of())
    assert await shell(f"cat {DIRECTORY}/mine.txt") == "mine"


async def test_another_repository_in_the_directory_is_left_alone(
    checked_out, checkouts, used, request_of, shell
):
    await shell(f"{IN} sed -i 's/^[^ ]*/another/' .git/sandbox-ready")
    with pytest.raises(CheckoutRefused, match="another repository"):
        await checkouts.check_out(used, request_of())


async def test_a_missing_git_and_a_directory_that_is_not_writable_say_so(
    checkouts, used, request_of, shell
):
    await shell("sudo mv /usr/bin/git /usr/bin/was-git")
    with pytest.raises(CheckoutFailed, match="has no git"):
        await checkouts.check_out(used, request_of())
    await shell("sudo mv /usr/bin/was-git /usr/bin/git")
    with pytest.raises(CheckoutFailed, match="denied"):
        await checkouts.check_out(used, request_of(directory="/nowhere/widgets"))


async def test_a_full_disk_says_so_and_leaves_nothing_behind(
    checkouts, used, request_of, shell, seeded, forge
):
    seeded.commit("feat: noise", noise=os.urandom(24 * 2**20))
    seeded.push(forge.path(NAME))
    await shell(
        "fallocate -l $(($(df --output=avail -B1 /home/user | tail -n 1) - 12582912)) filler"
    )
    with pytest.raises((DiskFull, CheckoutFailed)):
        await checkouts.check_out(used, request_of())
    await shell("rm filler")
    await checkouts.check_out(used, request_of())
    assert await shell(f"{IN} git status --porcelain --branch") == "## task-1"


async def test_submodules_and_lfs_files_stay_pointers(
    checkouts, used, request_of, shell, seeded, forge
):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    seeded.write(".gitattributes", "*.mp4 filter=lfs diff=lfs merge=lfs -text\n")
    seeded.commit("feat: media", video__mp4=pointer)
    seeded.git("update-index", "--add", "--cacheinfo", "160000," + "1" * 40 + ",vendored")
    seeded.git("commit", "--quiet", "-m", "feat: vendor it")
    seeded.push(forge.path(NAME))
    await checkouts.check_out(used, request_of())
    assert await shell(f"{IN} cat video.mp4") == pointer.strip()
    assert await shell(f"{IN} git status --porcelain") == ""


async def test_a_forge_that_does_not_answer_leaves_what_is_known(
    checked_out, checkouts, used, request_of, forge, mirrors, repository
):
    forge.answer = 503
    done = await checkouts.check_out(used, request_of(branch="task-2"), max_age=NOW)
    assert done.is_stale
    await mirrors.remove(repository.id)
    with pytest.raises(RemoteUnreachable):
        await checkouts.check_out(used, request_of(branch="task-3"), max_age=NOW)
