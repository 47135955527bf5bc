import asyncio
from datetime import timedelta

import pytest

from sandbox_server.domain.errors import SaveFailed, SaveTooLarge
from sandbox_server.domain.tasks.stages import SaveKind
from sandbox_server.git.work import SandboxWork
from sandbox_server.sandboxes.sandbox_access import SandboxAccess
from tests.server.git.conftest import DIRECTORY

IN = f"cd {DIRECTORY} &&"


@pytest.fixture
def work():
    return SandboxWork()


@pytest.fixture
async def take(checked_out, used, work):
    """Take the work out of the sandbox, as saves do."""

    async def take(known_mark=None):
        return await work.take(used, DIRECTORY, checked_out.base_sha, known_mark)

    return take


@pytest.fixture
async def restored(living, checkouts, work, request_of):
    """Restore work into another sandbox, and run commands there."""

    async def restore(taken):
        row = await living.row(await living.started())
        other = SandboxAccess(living.backends, living.vault).usable(row)
        await checkouts.check_out(other, request_of(base_sha=taken.base_sha))
        await work.restore(other, DIRECTORY, taken.bundle)

        async def run(command):
            inside = other.backend.inside(other.access)
            done = await inside.run_command(command, timeout=timedelta(seconds=60))
            return done.output.decode().strip()

        return run

    return restore


async def test_a_save_has_uncommitted_new_and_deleted_files(take, shell, bare, checked_out):
    await shell(
        f"{IN} echo changed >README.md && rm src/main.py && mkdir a && echo new >'a/b c.txt'"
    )
    taken = await take()
    await bare.import_bundle(taken.bundle)
    changed = {
        (one.status, one.path) for one in await bare.changed_files(checked_out.base_sha, taken.sha)
    }
    assert changed == {("M", "README.md"), ("D", "src/main.py"), ("A", "a/b c.txt")}
    assert (taken.kind, taken.files, taken.branch) == (SaveKind.WIP, 3, "task-1")
    assert taken.head_sha == checked_out.base_sha
    assert taken.tree == await bare.tree_of(taken.sha)


async def test_a_save_touches_neither_head_nor_index_nor_files(take, shell):
    await shell(f"{IN} echo staged >staged && git add staged && echo more >>staged && echo x >new")
    look = f"{IN} git status --porcelain --branch; cat .git/index .git/HEAD | sha256sum; find .git -type f | sort | sha256sum; ls /tmp"
    before = await shell(look)
    await take()
    assert await shell(look) == before


async def test_nothing_new_is_no_save_and_a_clean_tree_after_a_dirty_one_is_one(take, shell):
    clean = await take()
    assert clean.kind is SaveKind.HEAD
    assert await take(clean.mark) is None
    await shell(f"{IN} echo dirty >README.md")
    dirty = await take(clean.mark)
    assert dirty.kind is SaveKind.WIP
    assert await take(dirty.mark) is None
    await shell(f"{IN} git checkout -q README.md")
    again = await take(dirty.mark)
    assert (again.kind, again.tree, again.mark) == (SaveKind.HEAD, clean.tree, clean.mark)


async def test_a_commit_of_what_was_uncommitted_is_a_save(take, shell):
    await shell(f"{IN} echo dirty >README.md")
    dirty = await take()
    await shell(f"{IN} git commit -qam 'feat: it'")
    committed = await take(dirty.mark)
    assert committed.tree == dirty.tree
    assert committed.kind is SaveKind.HEAD
    assert committed.sha == committed.head_sha


async def test_work_on_other_branches_and_in_stashes_is_saved_and_restored(take, shell, restored):
    await shell(
        f"{IN} git switch -qc aside && echo a >aside.txt && git add . && git commit -qm 'feat: aside'"
        " && echo stashed >README.md && git stash -q && git switch -q task-1 && echo b >b.txt"
    )
    run = await restored(await take())
    assert await run(f"{IN} git status --porcelain --branch") == "## task-1\n?? b.txt"
    assert await run(f"{IN} git show aside:aside.txt") == "a"
    assert await run(f"{IN} git stash show -p | tail -n 1") == "+stashed"
    assert await run(f"{IN} git fsck --strict --no-dangling 2>&1") == ""


async def test_restored_work_has_head_branch_and_uncommitted_files_as_they_were(
    take, shell, restored
):
    await shell(
        f"{IN} git switch -qc by-the-agent && echo 1 >one && git add . && git commit -qm 'feat: one'"
        " && echo changed >README.md && rm src/main.py && printf '#!/bin/sh' >run.sh && chmod +x run.sh"
        " && ln -s README.md link"
    )
    look = f"{IN} git status --porcelain --branch && git rev-parse HEAD && cat one README.md && ls -l run.sh link | cut -c 1-10"
    before = await shell(look)
    run = await restored(await take())
    assert await run(look) == before


async def test_a_detached_head_is_restored_as_one(take, shell, restored):
    await shell(f"{IN} git checkout -q --detach && git commit -q --allow-empty -m 'feat: none'")
    taken = await take()
    assert taken.branch is None
    run = await restored(taken)
    assert await run(f"{IN} git rev-parse HEAD") == taken.head_sha
    assert (
        await run(f"{IN} git symbolic-ref HEAD 2>&1 || true")
        == "fatal: ref HEAD is not a symbolic ref"
    )


async def test_large_files_are_named_and_left_out_and_ignored_ones_are_not_taken(
    take, shell, bare, checked_out
):
    await shell(
        f"{IN} head -c 21M /dev/zero >'large file.bin' && head -c 20M /dev/zero >not-too-large"
        " && echo '*.log' >.gitignore && echo x >a.log"
    )
    taken = await take()
    await bare.import_bundle(taken.bundle)
    changed = {one.path for one in await bare.changed_files(checked_out.base_sha, taken.sha)}
    assert changed == {".gitignore", "not-too-large"}
    assert taken.left_out == ["large file.bin"]


async def test_files_that_cannot_be_read_and_nested_repositories_are_named(take, shell):
    await shell(
        f"{IN} echo secret >secret && sudo chown root secret && sudo chmod 600 secret"
        " && git init -q empty && touch empty/x && git init -q nested && cd nested"
        " && git -c user.name=a -c user.email=a commit -q --allow-empty -m x"
    )
    taken = await take()
    assert {*taken.left_out} == {
        "secret (not readable)",
        "nested/ (a repository of its own)",
        "empty/ (a repository without commits)",
    }


async def test_names_that_look_like_patterns_and_many_files_are_saved(
    take, shell, bare, checked_out
):
    await shell(
        f"{IN} touch -- '*' ':(top)x' ' a b' -x 'a[1]' $'new\\nline' 'ü' && rm -r src && echo file >src"
    )
    few = await take()
    await bare.import_bundle(few.bundle)
    changed = {one.path for one in await bare.changed_files(checked_out.base_sha, few.sha)}
    assert changed == {"*", ":(top)x", " a b", "-x", "a[1]", "new\nline", "ü", "src", "src/main.py"}
    await shell(f"{IN} mkdir many && cd many && seq 1000 | xargs touch")
    many = await take(few.mark)
    assert many.files == few.files + 1000


async def test_work_above_the_limit_is_refused_with_the_names_of_its_files(take, shell):
    await shell(f"{IN} for n in 1 2 3 4; do head -c 19M /dev/urandom >random-$n; done")
    with pytest.raises(SaveTooLarge, match=r"random-\d \(19 MiB\)"):
        await take()


async def test_programs_of_a_hostile_checkout_do_not_run(take, shell):
    await shell(
        f"{IN} echo x >x; printf '#!/bin/sh\\ntouch /home/user/ran' >/home/user/evil && chmod +x /home/user/evil"
        " && for name in post-index-change pre-commit reference-transaction post-checkout; do"
        " cp /home/user/evil .git/hooks/$name; done"
        " && git config core.hooksPath .git/hooks && git config core.fsmonitor /home/user/evil"
        " && git config core.pager /home/user/evil && git config diff.external /home/user/evil"
        " && rm -f /home/user/ran"
    )
    assert (await take()).files == 1
    assert await shell("ls /home/user") == "evil\nwidgets"


async def test_a_deleted_or_broken_repository_loses_no_files(take, shell):
    await shell(f"{IN} echo mine >mine.txt && rm -rf .git")
    without = await take()
    assert (without.base_sha, without.head_sha) == (None, None)
    await shell(
        f"{IN} git init -q && git config user.name a && git config user.email a && git add . && git commit -qm new"
    )
    anew = await take()
    assert (anew.base_sha, anew.tree) == (None, without.tree)
    await shell(f"{IN} find .git/objects -type f -delete")
    broken = await take()
    assert broken.tree == without.tree
    await shell(f"rm -rf {DIRECTORY}")
    with pytest.raises(SaveFailed, match="does not exist"):
        await take()


async def test_a_damaged_index_and_a_lock_left_behind_do_not_stop_a_save(take, shell):
    await shell(f"{IN} echo x >x && touch .git/index.lock && echo damaged >.git/index")
    assert (await take()).files == 1


async def test_a_change_in_the_second_of_the_index_and_of_the_same_size_is_saved(take, shell, bare):
    """Git tells it from the times of the file and the index, in seconds."""
    await shell(f"{IN} echo one >f && git add f && echo two >f")
    await shell("sleep 2")
    taken = await take()
    await bare.import_bundle(taken.bundle)
    assert (await bare.git("show", f"{taken.sha}:f")).text == "two"


async def test_head_is_looked_at(checked_out, work, used):
    found = await work.head(used, DIRECTORY)
    assert (found.head_sha, found.branch) == (checked_out.base_sha, "task-1")
    assert (await work.head(used, "/nowhere")).head_sha is None


async def test_a_save_while_the_agent_writes_is_whole(take, shell, bare):
    async def churn():
        await shell(
            f"{IN} for n in $(seq 200); do echo $n >file-$((n % 7)); git add -A; git commit -qm $n; done"
        )

    writing = asyncio.create_task(churn())
    mark = None
    while not writing.done():
        if (taken := await take(mark)) is not None:
            await bare.import_bundle(taken.bundle)
            mark = taken.mark
    await writing
    assert mark is not None
