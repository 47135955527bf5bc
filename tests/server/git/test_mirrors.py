import asyncio
import os
from datetime import timedelta

import pytest

from sandbox_server.db.models import Repository
from sandbox_server.domain.errors import (
    CommitNotFound,
    RemoteRefused,
    RemoteUnreachable,
    RepositoryTooLarge,
)
from sandbox_server.domain.ids import new_id
from sandbox_server.git.file_locks import NotLocked, locked
from sandbox_server.git.mirrors import Mirrors
from tests.server.git.conftest import NAME, NOW
from tests.server.git.work_trees import git

LONG = timedelta(hours=1)


async def test_a_mirror_has_branches_and_tags_and_nothing_else(mirrors, repository, forge, seeded):
    git(forge.path(NAME), "update-ref", "refs/pull/1/head", seeded.git("rev-parse", "main"))
    async with mirrors.use(repository, max_age=None) as mirror:
        assert await mirror.head("main") == seeded.git("rev-parse", "main")
        assert {*await mirror.refs()} == {"refs/heads/main", "refs/heads/other", "refs/tags/v1"}
        with pytest.raises(CommitNotFound):
            await mirror.head("nothing")
        with pytest.raises(CommitNotFound):
            await mirror.head("--all")


async def test_a_mirror_is_fetched_when_it_is_older_than_wanted(mirrors, repository, forge, seeded):
    async with mirrors.use(repository, max_age=LONG):
        asked = len(forge.requests)
    new = seeded.commit("feat: more", a="b")
    seeded.push(forge.path(NAME))
    async with mirrors.use(repository, max_age=LONG) as mirror:
        assert not await mirror.has(new)
    assert len(forge.requests) == asked
    async with mirrors.use(repository, max_age=NOW) as mirror:
        assert await mirror.head("main") == new


async def test_what_is_overwritten_or_deleted_upstream_stays(mirrors, repository, forge, seeded):
    lost = seeded.commit("feat: to be lost", a="b")
    seeded.push(forge.path(NAME))
    await mirrors.fetch(repository)
    seeded.git("reset", "--quiet", "--hard", "HEAD~1")
    seeded.push(forge.path(NAME))
    git(forge.path(NAME), "branch", "-D", "other")
    await mirrors.fetch(repository)
    async with mirrors.use(repository, max_age=None) as mirror:
        assert {*await mirror.refs()} == {"refs/heads/main", "refs/tags/v1"}
        kept = git(mirror.path, "for-each-ref", "--format=%(objectname)", "refs/kept")
        assert lost in kept.splitlines()
        git(mirror.path, "-c", "gc.pruneExpire=now", "gc", "--quiet")
        assert await mirror.has(lost)


async def test_many_fetches_leave_few_packs(mirrors, repository, forge, seeded):
    for number in range(24):
        seeded.commit(f"feat: {number}", a=str(number))
        seeded.push(forge.path(NAME))
        await mirrors.fetch(repository)
    async with mirrors.use(repository, max_age=None) as mirror:
        assert len(mirror.packs()) <= 21
        git(mirror.path, "fsck", "--connectivity-only")


@pytest.mark.parametrize("damage", ["truncate", "remove", "head"])
async def test_a_damaged_mirror_is_thrown_away_and_made_anew(
    mirrors, repository, forge, seeded, damage
):
    async with mirrors.use(repository, max_age=None) as mirror:
        (pack,) = mirror.packs()
        path = mirror.path
    match damage:
        case "truncate":
            pack.chmod(0o600)
            os.truncate(pack, 40)
        case "remove":
            pack.unlink()
        case "head":
            (path / "HEAD").write_text("damaged")
    new = seeded.commit("feat: more", a="b")
    seeded.push(forge.path(NAME))
    await mirrors.fetch(repository)
    async with mirrors.use(repository, max_age=None) as mirror:
        assert await mirror.head("main") == new
        assert git(mirror.path, "fsck", "--strict", "--no-dangling") == ""


async def test_a_mirror_that_was_discarded_is_made_anew(mirrors, repository, forge):
    async with mirrors.use(repository, max_age=None):
        asked = len(forge.requests)
    mirrors.discard(repository.id)
    async with mirrors.use(repository, max_age=None) as mirror:
        assert await mirror.head("main")
    assert len(forge.requests) > asked


async def test_a_forge_that_does_not_answer_leaves_a_stale_mirror(mirrors, repository, forge):
    async with mirrors.use(repository, max_age=NOW) as mirror:
        assert not mirror.is_stale
    forge.answer = 503
    async with mirrors.use(repository, max_age=NOW) as mirror:
        assert mirror.is_stale
        assert await mirror.head("main")
    mirrors.discard(repository.id)
    with pytest.raises(RemoteUnreachable):
        async with mirrors.use(repository, max_age=None):
            pass


async def test_a_repository_that_is_not_shown_any_more_is_refused(mirrors, repository, forge):
    async with mirrors.use(repository, max_age=None):
        pass
    forge.answer = 404
    with pytest.raises(RemoteRefused):
        async with mirrors.use(repository, max_age=NOW):
            pass


async def test_those_who_want_a_mirror_at_once_share_one_fetch(mirrors, repository, forge):
    async def head():
        async with mirrors.use(repository, max_age=LONG) as mirror:
            return await mirror.head("main")

    heads = await asyncio.gather(*(head() for _ in range(5)))
    assert len(set(heads)) == 1
    assert len([path for path in forge.requests if "info/refs" in path]) == 1


async def test_mirrors_that_were_used_longest_ago_go_first_and_those_in_use_stay(
    mirrors, repository, forge, tmp_path
):
    others = [_like(repository) for _ in range(3)]
    for number, other in enumerate(others):
        async with mirrors.use(other, max_age=None) as mirror:
            pass
        os.utime(mirrors.directory / f"{other.id}.use", (number, number))
    size = sum(path.stat().st_blocks * 512 for path in mirror.path.rglob("*"))
    small = Mirrors(mirrors.directory, mirrors._credentials, limit=2 * size)
    oldest = mirrors.directory / f"{others[0].id}.use"
    async with locked(oldest, shared=True):
        await small.remove_unused()
    left = {path.name.removesuffix(".git") for path in mirrors.directory.glob("*.git")}
    assert left == {others[0].id, others[2].id}


async def test_a_repository_above_the_limit_is_refused(mirrors, repository, forge, seeded):
    repository.size_bytes = 2**30 + 1
    with pytest.raises(RepositoryTooLarge):
        await mirrors.fetch(repository)
    repository.size_bytes = None  # the forge did not say
    seeded.commit("feat: noise", noise=os.urandom(2**20))
    seeded.push(forge.path(NAME))
    small = Mirrors(mirrors.directory, mirrors._credentials, limit=2**19)
    with pytest.raises(RepositoryTooLarge):
        await small.fetch(repository)


async def test_a_lock_excludes_others_until_its_block_ends(tmp_path):
    async with locked(tmp_path / "lock"):
        with pytest.raises(NotLocked):
            async with locked(tmp_path / "lock", shared=True):
                pass
    async with locked(tmp_path / "lock", shared=True), locked(tmp_path / "lock", shared=True):
        pass


def _like(repository):
    return Repository(
        id=new_id(),
        full_name=repository.full_name,
        default_branch="main",
        url=repository.url,
        settings={},
    )
