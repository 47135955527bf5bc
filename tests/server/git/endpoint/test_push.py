"""Pushes by the real git client: what is accepted, and how the rest is refused."""

import asyncio
import os
import re
import subprocess

import httpx
import pytest
from sqlalchemy import select, text

from sandbox_server.db.models import Task, TaskAttempt
from sandbox_server.git.endpoint import pushing
from sandbox_server.git.pkt_line import FLUSH, pkt_line
from tests.server.git.endpoint.conftest import ADDRESS, TOKEN
from tests.server.git.work_trees import git

BRANCH = "task-42"


async def run(client, *args, **options):
    """Run git beside the event loop, in which the server works."""
    return await asyncio.to_thread(client.git, *args, **options)


def at_forge(forge, branch=BRANCH):
    return git(forge.path("acme/widgets"), "rev-parse", "--verify", "-q", f"refs/heads/{branch}")


def branches_at_forge(forge):
    listed = git(forge.path("acme/widgets"), "for-each-ref", "--format=%(refname)")
    return listed.split()


@pytest.fixture
async def sandbox(place):
    return await place.task_sandbox()


@pytest.fixture
async def client(place, sandbox, git_in):
    """Clone the repository, on the branch of the task."""
    client = git_in()
    await run(client, "clone", "-q", place.remote(sandbox), ".")
    client.git("switch", "-q", "-c", BRANCH)
    return client


async def test_push__reaches_the_forge(place, sandbox, client, forge):
    sha = client.commit()
    await run(client, "push", "origin", BRANCH)
    assert at_forge(forge) == sha
    [push] = await place.pushes()
    assert (push.state, push.new_sha, push.old_sha, push.branch) == ("pushed", sha, None, BRANCH)
    async with place.sessions() as session:
        [task] = await session.scalars(text("SELECT pushed_shas FROM tasks"))
    assert task == [sha]


async def test_push__from_an_attempt_is_refused_and_a_fetch_is_not(place, sandbox, client, forge):
    async with place.sessions.begin() as session:
        task = await session.scalar(select(Task))
        task.sandbox_id, task.attempts = None, 2
        session.add(TaskAttempt(task_id=task.id, number=1, sandbox_id=sandbox.id))
    client.commit()
    await run(client, "push", "origin", BRANCH, fails=True)
    await run(client, "fetch", "-q", "origin", "main")
    assert f"refs/heads/{BRANCH}" not in branches_at_forge(forge)


async def test_push__again_and_then_fetched(place, client, forge):
    client.commit("feat: one")
    await run(client, "push", "origin", BRANCH)
    sha = client.commit("feat: two")
    await run(client, "push", "origin", BRANCH)
    assert at_forge(forge) == sha
    await run(client, "fetch", "--prune")
    assert client.git("rev-parse", f"origin/{BRANCH}") == sha
    assert "Everything up-to-date" in await run(client, "push", "origin", BRANCH)


async def test_push__more_than_the_client_buffers_is_announced_by_a_probe(client, forge):
    sha = client.commit(big__bin=bytes(range(256)) * 20_000 + os.urandom(3_000_000))
    client.environment = {"GIT_TRACE_CURL": "1", "GIT_TRACE_CURL_NO_DATA": "1"}
    said = await run(client, "push", "origin", BRANCH)
    assert "Content-Length: 4" in said
    assert "Transfer-Encoding: chunked" in said
    assert at_forge(forge) == sha


async def test_push__from_a_shallow_clone(place, sandbox, git_in, forge):
    client = git_in("shallow")
    await run(client, "clone", "-q", "--depth=1", place.remote(sandbox), ".")
    sha = client.commit()
    await run(client, "push", "origin", f"HEAD:{BRANCH}")
    assert at_forge(forge) == sha


REFUSED = {
    "another branch": (["HEAD:main"], "only task-42 may be pushed"),
    "another case": (["HEAD:refs/heads/TASK-42"], "only task-42 may be pushed"),
    "a longer name": (["HEAD:task-42x"], "only task-42 may be pushed"),
    "a tag": (["HEAD:refs/tags/v2"], "only task-42 may be pushed"),
    "a pull request": (["HEAD:refs/pull/1/head"], "only task-42 may be pushed"),
    "a deletion": ([":main"], "only task-42 may be pushed"),
    "with the others": (["HEAD:task-42", "HEAD:other"], "refused with the others"),
}


@pytest.mark.parametrize("case", REFUSED)
async def test_push__refused_in_gits_own_words(client, forge, case):
    refs, reason = REFUSED[case]
    client.commit()
    before = branches_at_forge(forge)
    said = await run(client, "push", "origin", *refs, fails=True)
    assert f"({reason})" in said
    assert "! [remote rejected]" in said
    assert "remote: sandbox-server: from here only refs/heads/task-42 can be pushed." in said
    assert branches_at_forge(forge) == before


async def test_push__own_branch_is_not_deleted(client, forge):
    client.commit()
    await run(client, "push", "origin", BRANCH)
    said = await run(client, "push", "origin", f":{BRANCH}", fails=True)
    assert "(task-42 may not be deleted)" in said
    assert at_forge(forge)


async def test_push__own_commits_may_be_replaced_by_force(client, forge):
    client.commit("feat: one")
    await run(client, "push", "origin", BRANCH)
    client.git("commit", "-q", "--amend", "-m", "feat: better")
    assert "rejected" in await run(client, "push", "origin", BRANCH, fails=True)
    await run(client, "push", "--force-with-lease", "origin", BRANCH)
    assert at_forge(forge) == client.git("rev-parse", "HEAD")


async def test_push__commits_of_others_are_never_replaced(client, forge, seeded):
    client.commit("feat: one")
    await run(client, "push", "origin", BRANCH)
    seeded.git("fetch", "-q", str(forge.path("acme/widgets")), BRANCH)
    seeded.git("checkout", "-q", "FETCH_HEAD")
    person = seeded.commit("fix: by a person", person__txt="1")
    seeded.push(forge.path("acme/widgets"), f"HEAD:refs/heads/{BRANCH}")
    client.commit("feat: two", two__txt="2")
    for options in ([], ["--force"]):
        said = await run(client, "push", *options, "origin", BRANCH, fails=True)
        assert "fetch first" in said or "commits of somebody else" in said
        assert at_forge(forge) == person
    await run(client, "fetch")
    await run(client, "merge", "-q", "--no-edit", f"origin/{BRANCH}")
    await run(client, "push", "origin", BRANCH)
    assert at_forge(forge) == client.git("rev-parse", "HEAD")


async def test_push__protected_paths_need_an_approval(place, client, forge):
    sha = client.commit(__github___workflows___ci__yml="on: push\n")
    client.git("log", "--stat", "-1")
    said = await run(client, "push", "origin", BRANCH, fails=True)
    assert "changes of .github/workflows/ci.yml need an approval" in said
    await place.set(Task, approved=[sha])
    await run(client, "push", "origin", BRANCH)
    assert at_forge(forge) == sha


async def test_push__secrets_are_named_by_file_and_line_and_not_repeated(client, forge):
    secret = "ghp_" + "a1B2" * 9
    client.commit("feat: config", config__py=f"one = 1\ntoken = '{secret}'\n")
    client.commit("fix: remove it", config__py="one = 1\n")
    said = await run(client, "push", "origin", BRANCH, fails=True)
    assert re.search(r"config\.py:2 in [0-9a-f]{7} looks like a GitHub token", said)
    assert secret not in said
    assert f"refs/heads/{BRANCH}" not in branches_at_forge(forge)


async def test_push__a_refused_secret_is_refused_again_with_more_on_top(client, forge):
    client.commit("feat: config", config__py="token = 'ghp_" + "a1B2" * 9 + "'\n")
    await run(client, "push", "origin", BRANCH, fails=True)
    client.commit("feat: more", more__txt="1")
    said = await run(client, "push", "origin", BRANCH, fails=True)
    assert "looks like a GitHub token" in said


async def test_push__too_large_is_refused_with_a_reason(client, forge, monkeypatch):
    monkeypatch.setattr(pushing, "MAX_PACK", 100_000)
    client.commit(big__bin=os.urandom(300_000))
    said = await run(client, "push", "origin", BRANCH, fails=True)
    assert "pack exceeds maximum allowed size" in said
    assert f"refs/heads/{BRANCH}" not in branches_at_forge(forge)


async def test_push__broken_objects_are_refused(client, forge):
    """A tree with an entry `.git`, which would write into a repository at its checkout."""
    blob = client.git("hash-object", "-w", "--stdin", stdin=b"[core]\n")
    tree = client.git(
        *("hash-object", "-w", "--literally", "-t", "tree", "--stdin"),
        stdin=b"100644 .git\0" + bytes.fromhex(blob),
    )
    commit = client.git("commit-tree", tree, "-p", "HEAD", "-m", "feat: evil")
    said = await run(client, "push", "origin", f"{commit}:refs/heads/{BRANCH}", fails=True)
    assert "hasDotgit" in said
    assert f"refs/heads/{BRANCH}" not in branches_at_forge(forge)


async def test_push__a_plain_sandbox_pushes_the_branch_of_its_request(place, git_in, forge):
    sandbox = await place.plain_sandbox(push=True, branch="mine")
    client = git_in()
    await run(client, "clone", "-q", place.remote(sandbox), ".")
    sha = client.commit()
    await run(client, "push", "origin", "HEAD:mine")
    assert at_forge(forge, "mine") == sha
    assert "only mine may be pushed" in await run(
        client, "push", "origin", "HEAD:task-42", fails=True
    )


async def test_push__without_the_right_to_it(place, git_in):
    sandbox = await place.plain_sandbox(branch="mine")
    client = git_in()
    await run(client, "clone", "-q", place.remote(sandbox), ".")
    client.commit()
    said = await run(client, "push", "origin", "HEAD:mine", fails=True)
    assert "may fetch git.example.org/acme/widgets, and not push to it" in said


async def test_push__no_token_of_the_forge_is_seen_by_the_client(client, forge):
    client.environment = {
        "GIT_TRACE_CURL": "1",
        "GIT_TRACE_PACKET": "1",
        "GIT_TRACE_REDACT": "0",
    }
    client.commit()
    said = await run(client, "push", "origin", BRANCH)
    said += await run(client, "fetch")
    assert "Authorization: Basic" in said
    assert "token-of-the-forge" not in said
    assert "eC1hY2Nlc3MtdG9rZW4" not in said  # base64 of x-access-token


async def test_push__with_objects_missing_is_refused(place, sandbox, client, forge):
    """A pack with a commit, without its tree and files."""
    sha = client.commit(missing__txt="this is not sent")
    packing = await asyncio.to_thread(
        subprocess.run,
        ["git", "pack-objects", "--stdout", "-q"],
        cwd=client.directory,
        input=f"{sha}\n".encode(),
        capture_output=True,
        check=True,
    )
    command = f"{'0' * 40} {sha} refs/heads/{BRANCH}\0 report-status".encode()
    async with httpx.AsyncClient(auth=(sandbox.id, TOKEN)) as raw:
        answer = await raw.post(
            f"{place.url}/git/{ADDRESS}/git-receive-pack",
            content=pkt_line(command) + FLUSH + packing.stdout,
        )
    assert answer.status_code == 200
    assert f"ng refs/heads/{BRANCH}" in answer.text
    assert f"refs/heads/{BRANCH}" not in branches_at_forge(forge)


async def test_push__that_ends_in_the_middle_leaves_nothing(place, sandbox, client, forge):
    client.commit()
    command = f"{'0' * 40} {client.git('rev-parse', 'HEAD')} refs/heads/{BRANCH}\0 report-status"
    async with httpx.AsyncClient(auth=(sandbox.id, TOKEN)) as raw:
        answer = await raw.post(
            f"{place.url}/git/{ADDRESS}/git-receive-pack",
            content=pkt_line(command.encode()) + FLUSH + b"PACK\0\0\0\2\0\0",
        )
    assert f"ng refs/heads/{BRANCH}" in answer.text
    assert await place.pushes() == []
    await run(client, "push", "origin", BRANCH)
    assert at_forge(forge) == client.git("rev-parse", "HEAD")


async def test_push__refused_pushes_cannot_fill_the_disk(client, monkeypatch):
    monkeypatch.setattr(pushing, "MAX_SCRATCH", 1_000_000)
    client.commit(secret__py="token = 'ghp_" + "a1B2" * 9 + "'\n", big__bin=os.urandom(1_100_000))
    assert "GitHub token" in await run(client, "push", "origin", BRANCH, fails=True)
    assert "no room for it" in await run(client, "push", "origin", BRANCH, fails=True)
