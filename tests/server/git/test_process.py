import base64
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import pytest

from sandbox_server.domain.errors import (
    GitError,
    GitTimedOut,
    GitUnavailable,
    RemoteRefused,
    RemoteUnreachable,
)
from sandbox_server.domain.tasks.forges import GitCredential
from sandbox_server.git.process import GitLimits, run_git
from tests.server.git.conftest import NAME
from tests.server.git.git_server import PASSWORD, USER

_SLOW = "f() { sleep 60; }; f"


async def test_output_above_the_limit_is_an_error():
    with pytest.raises(GitError, match="more than 10 bytes"):
        await run_git("help", "--all", limits=GitLimits(output=10))


async def test_output_above_the_limit_is_cut_off_where_that_is_wanted():
    said = await run_git("help", "--all", limits=GitLimits(output=10), truncate=True)
    assert said.truncated
    assert len(said.stdout) == 10


async def test_stderr_that_arrives_in_small_pieces_is_kept():
    talking = "f() { for i in 1 2 3 4 5; do echo piece $i >&2; sleep 0.05; done; }; f"
    said = await run_git("-c", f"alias.talk=!{talking}", "talk")
    assert [line[-1] for line in said.stderr.splitlines()] == ["1", "2", "3", "4", "5"]


async def test_git_is_stopped_after_its_time():
    with pytest.raises(GitTimedOut, match="stopped after 1 s"):
        await run_git(
            *("-c", f"alias.wait=!{_SLOW}", "wait"),
            limits=GitLimits(timeout=timedelta(seconds=1)),
        )


async def test_memory_of_git_is_limited(bare):
    content = b"x" * (48 * 2**20)
    with pytest.raises(GitError, match=r"memory|mmap|malloc"):
        await _hash(bare, content, memory=32 * 2**20)
    await _hash(bare, content, memory=2**30)


async def _hash(bare, content, *, memory):
    # Without a path's attributes git reads what it hashes whole.
    await run_git(
        *("hash-object", "--stdin", "--path=a"),
        directory=bare.path,
        stdin=content,
        limits=GitLimits(memory=memory),
    )


async def test_the_configuration_of_the_machine_has_no_effect(monkeypatch, tmp_path):
    (tmp_path / ".gitconfig").write_text("[alias]\n  mine = version\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(GitError):
        await run_git("mine")


async def test_hooks_do_not_run(bare, mirrors, repository, tmp_path):
    hook = bare.path / "hooks" / "reference-transaction"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    async with mirrors.use(repository, max_age=None) as mirror:
        await bare.git("update-ref", "refs/heads/new", await mirror.head("main"))
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("url", ["ext::sh -c 'touch {ran}'", "file://{served}", "{served}"])
async def test_only_http_is_spoken(url, forge, seeded, tmp_path):
    ran = tmp_path / "ran"
    with pytest.raises(GitError, match="not allowed"):
        await run_git("ls-remote", url.format(ran=ran, served=forge.path(NAME)))
    assert not ran.exists()


async def test_the_credential_is_in_no_command_line(forge, seeded):
    forge.look = _command_lines
    await run_git("ls-remote", forge.url(NAME), credential=forge.credential(NAME))
    assert any(b"ls-remote" in line for line in forge.seen)
    secrets = (PASSWORD.encode(), base64.b64encode(f"{USER}:{PASSWORD}".encode()))
    assert not [line for line in forge.seen for secret in secrets if secret in line]


def _command_lines() -> Iterator[bytes]:
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            yield (process / "cmdline").read_bytes()


async def test_the_credential_is_not_in_errors(forge, seeded):
    wrong = forge.credential(NAME, password="wrong-password")
    with pytest.raises(RemoteRefused) as refused:
        await run_git("ls-remote", f"{forge.url(NAME)}?wrong-password", credential=wrong)
    assert "wrong-password" not in str(refused.value)


async def test_the_credential_is_sent_to_its_own_repository_only(forge, seeded):
    other = GitCredential(url="http://127.0.0.1:9/other.git", username="x", password=PASSWORD)
    with pytest.raises(RemoteRefused):
        await run_git("ls-remote", forge.url(NAME), credential=other)


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (503, RemoteUnreachable),
        (429, RemoteUnreachable),
        (404, RemoteRefused),
        (403, RemoteRefused),
    ],
)
async def test_a_remote_that_refuses_is_told_from_one_that_does_not_answer(
    forge, seeded, status, error
):
    forge.answer = status
    with pytest.raises(error):
        await run_git("ls-remote", forge.url(NAME), credential=forge.credential(NAME))


async def test_a_remote_that_is_not_there_is_unreachable():
    nobody = GitCredential(url="http://127.0.0.1:9/a.git")
    with pytest.raises(RemoteUnreachable, match="Failed to connect"):
        await run_git("ls-remote", nobody.url, credential=nobody)


async def test_a_server_without_git_says_so(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(GitUnavailable):
        await run_git("version")
