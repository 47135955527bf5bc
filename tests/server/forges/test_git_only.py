"""Forges that are used by git alone: any git server, and GitLab and Forgejo without API tokens."""

import json

import pytest

from sandbox_server.domain.errors import (
    ForgeUnavailable,
    NotSupportedByForge,
)
from sandbox_server.domain.tasks.forges import (
    ForgeKind,
    GitAccess,
)
from tests.server.forges.support.git_server import GitAccessOf, git, running_git_server
from tests.server.forges.support.samples import DRAFT
from tests.server.forges.support.scripted_server import Reply


@pytest.fixture
def git_server(tmp_path):
    def judge(password, _name):
        return GitAccessOf(read=password in {"secret", "ro"}, write=password == "secret")

    with running_git_server(tmp_path, judge) as server:
        path = server.add_repository("acme/widgets")
        git("-C", str(path), "symbolic-ref", "HEAD", "refs/heads/trunk")
        clone = str(tmp_path / "clone")
        git("clone", "--quiet", server.url_of("acme/widgets", "secret"), clone)
        git("-C", clone, "commit", "--quiet", "--allow-empty", "-m", "Start")
        git("-C", clone, "push", "--quiet", "origin", "HEAD:refs/heads/trunk")
        yield server


async def test_git__a_repository_is_found_with_its_default_branch(reach, git_server):
    adapter = await reach(
        ForgeKind.GIT, git_server.url, api_url=None, secret="secret", git_username="deployer"
    )
    repository = await adapter.find_repository("acme/widgets")
    assert (repository.external_id, repository.default_branch) == ("acme/widgets", "trunk")
    credential = await adapter.git_credential(repository, GitAccess.WRITE)
    assert (credential.username, credential.password) == ("deployer", "secret")
    assert credential.url == git_server.url_of("acme/widgets")
    with pytest.raises(NotSupportedByForge):
        await adapter.find_pull(repository, "task-1")
    assert adapter.pull_by_push(DRAFT) is None


async def test_git__an_address_that_is_no_git_server_is_told_as_such(reach, scripted):
    scripted.script = lambda _: Reply(body=b"<html>hello</html>")
    adapter = await reach(ForgeKind.GIT, api_url=None)
    with pytest.raises(ForgeUnavailable, match="not a git server"):
        await adapter.find_repository("acme/widgets")


async def test_git__a_deploy_token_opens_merge_requests_by_push_options(
    reach, git_server, tmp_path
):
    adapter = await reach(ForgeKind.GITLAB, git_server.url, git_only=True, secret="secret")
    repository = await adapter.find_repository("acme/widgets")
    push = adapter.pull_by_push(DRAFT)
    assert push.ref == "refs/heads/task-1"
    assert list(push.options) == [
        "merge_request.create",
        "merge_request.target=main",
        "merge_request.title=fix: count",
        "merge_request.description=Because.<br><br>Closes #1",
        "merge_request.draft",
        "merge_request.label=bug",
    ]
    hook = git_server.directory / "acme/widgets.git/hooks/post-receive"
    hook.write_text(f'#!/bin/sh\nenv | grep ^GIT_PUSH_OPTION > "{tmp_path}/options"\n')
    credential = await adapter.git_credential(repository, GitAccess.WRITE)
    url = git_server.url_of("acme/widgets", credential.password)
    options = [word for option in push.options for word in ("-o", option)]
    git("-C", str(tmp_path / "clone"), "push", *options, url, f"HEAD:{push.ref}")
    told = (tmp_path / "options").read_text()
    assert "GIT_PUSH_OPTION_COUNT=6" in told
    assert "=merge_request.title=fix: count\n" in told


async def test_git__a_push_to_forgejo_is_one_for_its_base(reach, git_server):
    adapter = await reach(ForgeKind.FORGEJO, git_server.url, git_only=True, secret="secret")
    push = adapter.pull_by_push(DRAFT)
    assert push.ref == "refs/for/main"
    assert list(push.options) == [
        "topic=task-1",
        "title=WIP: fix: count",
        "description=Because.<br><br>Closes #1",
    ]
    assert "\n" not in json.dumps(list(push.options))
