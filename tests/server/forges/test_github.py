"""The GitHub adapter against an emulated GitHub, as an App and with a token."""

from datetime import UTC, datetime, timedelta

import pytest

from sandbox_server.domain.errors import (
    ForgeCredentialRefused,
    ForgePermissionMissing,
    ForgeRefused,
    ForgeResourceNotFound,
    ForgeUnavailable,
    NotSupportedByForge,
    PullExists,
)
from sandbox_server.domain.tasks.forges import (
    CheckConclusion,
    CheckFacts,
    ForgeAuth,
    GitAccess,
    PullDraft,
    PullLifecycle,
)
from tests.server.forges.support.git_server import git
from tests.server.forges.support.github_emulator import PERMISSIONS

DRAFT = PullDraft(
    title="fix: count", body="Because.\n\nCloses #1", head_ref="task-1", base_ref="main", draft=True
)


@pytest.fixture(params=[ForgeAuth.APP, ForgeAuth.TOKEN])
async def connected(request, connect, forge_world):
    return await connect(forge_world, auth=request.param)


@pytest.fixture
def adapter(connected):
    return connected.adapter


@pytest.fixture
async def repository(adapter):
    return await adapter.find_repository("acme/widgets")


async def test_github__a_repository_is_found_with_what_identifies_it(adapter, repository):
    assert repository.full_name == "acme/widgets"
    assert repository.default_branch == "main"
    assert repository.private is True
    assert repository.external_id.isdecimal()


async def test_github__a_missing_repository_is_told_as_such(adapter):
    with pytest.raises(ForgeResourceNotFound) as told:
        await adapter.find_repository("acme/nothing")
    assert not told.value.is_repeatable
    assert "acme/nothing" in str(told.value)


async def test_github__failed_jobs_are_rerun_once(adapter, repository, forge_world):
    sha = forge_world.head()
    forge_world.github.add_job(sha, "unit", log="no answer")
    [failed] = (await adapter.list_checks(repository, sha)).value
    await adapter.rerun_checks(repository, [failed])
    await adapter.rerun_checks(repository, [failed])
    [again] = (await adapter.list_checks(repository, sha)).value
    assert (again.name, again.is_done, again.origin) == ("unit", False, "job")
    assert again.external_id != failed.external_id
    sent = [each["path"] for each in forge_world.github.requests() if each["method"] == "POST"]
    assert len([path for path in sent if path.endswith("/rerun-failed-jobs")]) == 1


async def test_github__checks_that_are_no_jobs_cannot_be_rerun(adapter, repository):
    status = CheckFacts(external_id="status/x", name="x", origin="status", is_done=True)
    with pytest.raises(NotSupportedByForge, match="Actions"):
        await adapter.rerun_checks(repository, [status])


async def test_github__who_labelled_an_issue_since_then_is_found(adapter, repository, forge_world):
    since = datetime.now(UTC) - timedelta(minutes=5)
    number = forge_world.open_issue("Wrong", "Body")
    with forge_world.github.owner as owner:
        owner.post(f"/repos/acme/widgets/issues/{number}/labels", json={"labels": ["agent"]})
    found = await adapter.list_labellings(repository, "agent", since=since)
    [labelling] = found.value
    assert (labelling.number, labelling.actor) == (number, "octocat")
    again = await adapter.list_labellings(
        repository, "agent", since=since, validator=found.validator
    )
    assert again.value is None
    later = since + timedelta(hours=1)
    assert (await adapter.list_labellings(repository, "agent", since=later)).value == ()


async def test_github__new_comments_are_listed_with_what_they_are_on(
    adapter, repository, forge_world
):
    forge_world.push({"a": "a"}, branch="feature")
    number = forge_world.open_issue("Wrong", "Body")
    with forge_world.github.owner as owner:
        repo = "/repos/acme/widgets"
        pull = {"title": "Feature", "head": "feature", "base": "main"}
        pull = owner.post(f"{repo}/pulls", json=pull).json()["number"]
        for on in (number, pull):
            owner.post(f"{repo}/issues/{on}/comments", json={"body": f"@agent {on}"})
    since = datetime.now(UTC) - timedelta(minutes=5)
    found = await adapter.list_new_comments(repository, since=since)
    told = {(each.number, each.is_on_pull, each.body) for each in found.value}
    assert told == {(number, False, f"@agent {number}"), (pull, True, f"@agent {pull}")}
    again = await adapter.list_new_comments(repository, since=since, validator=found.validator)
    assert again.value is None


async def test_github__new_comments_of_all_pages_are_listed(adapter, repository, forge_world):
    number = forge_world.open_issue("Wrong", "Body")
    since = datetime.now(UTC) - timedelta(minutes=5)
    with forge_world.github.owner as owner:
        for written in range(101):
            comment = {"body": f"comment {written}"}
            owner.post(f"/repos/acme/widgets/issues/{number}/comments", json=comment)
    found = await adapter.list_new_comments(repository, since=since)
    assert [each.body for each in found.value] == [f"comment {number}" for number in range(101)]
    assert found.validator is None  # of the first page, which the next comment does not change


async def test_github__a_comment_on_a_commit_is_found_and_edited(adapter, repository, forge_world):
    sha = forge_world.head()
    made = await adapter.comment_on_commit(repository, sha, "a diagnosis <!-- mark -->")
    assert await adapter.find_commit_comment(repository, sha, "<!-- mark -->") == made
    assert (await adapter.edit_comment(repository, made.id, "a better one")).id == made.id
    with forge_world.github.owner as owner:
        [found] = owner.get(f"/repos/acme/widgets/commits/{sha}/comments").json()
    assert found["body"] == "a better one"


async def test_github__an_issue_is_read_with_its_comments(adapter, repository, forge_world):
    number = forge_world.open_issue("Wrong", "Body", labels=["bug"])
    with forge_world.github.owner as owner:
        for text in ("first", "second"):
            owner.post(f"/repos/acme/widgets/issues/{number}/comments", json={"body": text})
    issue = await adapter.get_issue(repository, number)
    assert (issue.title, issue.body, issue.author, issue.is_open) == (
        "Wrong",
        "Body",
        "octocat",
        True,
    )
    assert [comment.body for comment in issue.comments] == ["first", "second"]


async def test_github__a_pull_request_goes_its_way(adapter, repository, forge_world):
    sha = forge_world.push({"src/widgets.py": "def count():\n    return 2\n"}, branch="task-1")
    assert await adapter.find_pull(repository, "task-1") is None
    opened = await adapter.open_pull(repository, DRAFT)
    assert (opened.head_sha, opened.draft, opened.lifecycle) == (sha, True, PullLifecycle.OPEN)
    assert opened.head_repository_id == repository.external_id
    assert (await adapter.find_pull(repository, "task-1")).number == opened.number
    with pytest.raises(PullExists):
        await adapter.open_pull(repository, DRAFT)
    changed = await adapter.update_pull(repository, opened.number, title="fix: it", body="New")
    assert (changed.title, changed.body, changed.draft) == ("fix: it", "New", True)
    ready = await adapter.update_pull(repository, opened.number, draft=False)
    assert ready.draft is False
    await adapter.add_labels(repository, opened.number, ["bug"])
    await adapter.request_reviewers(repository, opened.number, ["visitor"])
    closed = await adapter.update_pull(repository, opened.number, closed=True)
    assert closed.lifecycle is PullLifecycle.CLOSED
    assert (await adapter.find_pull(repository, "task-1")).lifecycle is PullLifecycle.CLOSED
    with forge_world.github.owner as owner:
        document = owner.get(f"/repos/acme/widgets/pulls/{opened.number}").json()
    assert [label["name"] for label in document["labels"]] == ["bug"]
    assert [user["login"] for user in document["requested_reviewers"]] == ["visitor"]


async def test_github__a_pull_request_without_commits_is_refused_with_the_reason(
    adapter, repository, forge_world
):
    forge_world.push({"x": "1"}, branch="task-1")
    with forge_world.github.owner as owner:
        head = {"sha": forge_world.head(), "force": True}
        owner.patch("/repos/acme/widgets/git/refs/heads/task-1", json=head).raise_for_status()
    with pytest.raises(ForgeRefused, match="No commits between main and task-1"):
        await adapter.open_pull(repository, DRAFT)


async def test_github__an_unchanged_pull_request_is_answered_by_its_validator(
    adapter, repository, forge_world
):
    forge_world.push({"x": "1"}, branch="task-1")
    number = (await adapter.open_pull(repository, DRAFT)).number
    first = await adapter.get_pull(repository, number)
    again = await adapter.get_pull(repository, number, validator=first.validator)
    assert (again.value, again.validator) == (None, first.validator)
    sha = forge_world.push({"x": "2"}, branch="task-1")
    later = await adapter.get_pull(repository, number, validator=first.validator)
    assert later.value.head_sha == sha
    # The emulated GitHub tells milliseconds of new requests and seconds of changed ones.
    assert later.value.updated_at >= first.value.updated_at.replace(microsecond=0)


async def test_github__a_merged_pull_request_is_known_as_merged(adapter, repository, forge_world):
    forge_world.push({"x": "1"}, branch="task-1")
    number = (
        await adapter.open_pull(repository, PullDraft(**{**DRAFT.__dict__, "draft": False}))
    ).number
    with forge_world.github.owner as owner:
        owner.put(f"/repos/acme/widgets/pulls/{number}/merge", json={}).raise_for_status()
    assert (await adapter.get_pull(repository, number)).value.lifecycle is PullLifecycle.MERGED


async def test_github__comments_are_found_again_by_their_marker(adapter, repository, forge_world):
    number = forge_world.open_issue()
    made = await adapter.comment(repository, number, "Working. <!-- ours:1 -->")
    await adapter.comment(repository, number, "Other.")
    edited = await adapter.edit_comment(repository, made.id, "Done. <!-- ours:1 -->")
    found = await adapter.find_comment(repository, number, "<!-- ours:1 -->")
    assert (found.id, found.body) == (made.id, edited.body)
    assert found.body.startswith("Done.")
    assert await adapter.find_comment(repository, number, "<!-- ours:2 -->") is None


async def test_github__a_review_is_read_with_its_comments_and_answered(
    adapter, repository, forge_world
):
    forge_world.push({"x": "1"}, branch="task-1")
    number = (await adapter.open_pull(repository, DRAFT)).number
    pull = f"/repos/acme/widgets/pulls/{number}"
    with forge_world.github.owner as owner:
        review = {
            "event": "REQUEST_CHANGES",
            "body": "Not yet.",
            "comments": [{"path": "x", "position": 1, "body": "Two."}],
        }
        made = owner.post(f"{pull}/reviews", json=review).raise_for_status().json()
    read = await adapter.get_review(repository, number, str(made["id"]))
    assert (read.author, read.state, read.body) == ("octocat", "changes_requested", "Not yet.")
    assert [(each.path, each.body) for each in read.comments] == [("x", "Two.")]
    assert [each.id for each in await adapter.list_reviews(repository, number)] == [read.id]
    reply = await adapter.reply_to_review(repository, number, read.comments[0].thread_id, "Done.")
    assert reply.body == "Done."


async def test_github__checks_are_listed_with_logs_and_conclusions(
    adapter, repository, forge_world
):
    sha = forge_world.push({"x": "1"}, branch="task-1")
    forge_world.github.add_job(sha, "unit", log="start\n" + "x" * 5000 + "\nAssertionError: 1\n")
    with forge_world.github.owner as owner:
        status = {
            "state": "success",
            "context": "deploy/preview",
            "target_url": "https://x.example",
        }
        owner.post(f"/repos/acme/widgets/statuses/{sha}", json=status).raise_for_status()
        lint = {
            "name": "lint",
            "head_sha": sha,
            "status": "completed",
            "conclusion": "failure",
            "output": {
                "title": "1 error",
                "summary": "E1",
                "annotations": [
                    {
                        "path": "x",
                        "start_line": 1,
                        "end_line": 1,
                        "annotation_level": "failure",
                        "message": "bad",
                    }
                ],
            },
        }
        owner.post("/repos/acme/widgets/check-runs", json=lint).raise_for_status()
    told = await adapter.list_checks(repository, sha)
    checks = {check.name: check for check in told.value}
    assert {
        name: (check.origin, check.is_done, check.conclusion) for name, check in checks.items()
    } == {
        "unit": ("job", True, CheckConclusion.FAILURE),
        "lint": ("check-run", True, CheckConclusion.FAILURE),
        "deploy/preview": ("status", True, CheckConclusion.SUCCESS),
    }
    log = await adapter.read_check_log(repository, checks["unit"], max_bytes=100)
    assert (len(log), log.endswith(b"AssertionError: 1\n")) == (100, True)
    output = await adapter.read_check_log(repository, checks["lint"], max_bytes=1000)
    assert output == b"1 error\nE1\nx:1: failure: bad"
    again = await adapter.list_checks(repository, sha, validator=told.validator)
    assert again.value is None
    with forge_world.github.owner as owner:
        status = {"state": "failure", "context": "deploy/preview"}
        owner.post(f"/repos/acme/widgets/statuses/{sha}", json=status).raise_for_status()
    later = await adapter.list_checks(repository, sha, validator=told.validator)
    assert len(later.value) == 3


async def test_github__only_users_with_write_permission_may_write(adapter, repository):
    assert await adapter.may_write(repository, "octocat") is True
    assert await adapter.may_write(repository, "visitor") is False
    assert await adapter.may_write(repository, "nobody/../octocat") is False


async def test_github__git_works_with_the_credential(adapter, repository, forge_world, tmp_path):
    credential = await adapter.git_credential(repository, GitAccess.WRITE)
    assert credential.password not in repr(credential)
    url = credential.url.replace("://", f"://{credential.username}:{credential.password}@")
    git("clone", "--quiet", url, str(tmp_path / "clone"))
    there = ("-C", str(tmp_path / "clone"))
    git(*there, "commit", "--quiet", "--allow-empty", "-m", "empty")
    git(*there, "push", "--quiet", "origin", "HEAD:refs/heads/task-9")
    assert forge_world.head("task-9") == git(*there, "rev-parse", "HEAD")


async def test_github__a_token_that_was_revoked_is_minted_anew_once(connect, forge_world):
    connected = await connect(forge_world)
    repository = await connected.adapter.find_repository("acme/widgets")
    number = forge_world.open_issue()
    await connected.adapter.get_issue(repository, number)
    forge_world.github.revoke()
    assert (await connected.adapter.get_issue(repository, number)).number == number
    paths = [
        (each["path"].split("?")[0], each.get("status")) for each in forge_world.github.requests()
    ]
    issue = f"/repos/acme/widgets/issues/{number}"
    assert [status for path, status in paths if path == issue] == [200, None, 200]


async def test_github__a_token_that_a_person_revoked_is_told_and_not_repeated(connect, forge_world):
    connected = await connect(forge_world, auth=ForgeAuth.TOKEN)
    repository = await connected.adapter.find_repository("acme/widgets")
    forge_world.github.revoke(forge_world.github.owner_token)
    before = len(forge_world.github.requests())
    with pytest.raises(ForgeCredentialRefused) as told:
        await connected.adapter.get_issue(repository, 1)
    assert not told.value.is_repeatable
    assert forge_world.github.owner_token not in str(told.value)
    assert len(forge_world.github.requests()) == before + 1


async def test_github__tokens_are_minted_per_repository_with_the_least_permissions_and_shared(
    connect, forge_world, make_forges
):
    connected = await connect(forge_world)
    repository = await connected.adapter.find_repository("acme/widgets")
    read = await connected.adapter.git_credential(repository, GitAccess.READ)
    write = await connected.adapter.git_credential(repository, GitAccess.WRITE)
    other = await make_forges(*forge_world.hosts).adapter(connected.row.id)
    assert (await other.git_credential(repository, GitAccess.WRITE)).password == write.password
    assert read.password != write.password
    minted = [token for token in forge_world.github.minted() if "contents" in token["permissions"]]
    assert [token["permissions"] for token in minted] == [
        {"metadata": "read", "contents": "read"},
        {"metadata": "read", "contents": "write"},
    ]
    assert {tuple(token["repository_ids"]) for token in minted} == {(int(repository.external_id),)}


async def test_github__a_missing_permission_of_the_app_is_named(connect, make_forge_world):
    world = make_forge_world(permissions=PERMISSIONS | {"contents": "read"})
    connected = await connect(world)
    repository = await connected.adapter.find_repository("acme/widgets")
    await connected.adapter.git_credential(repository, GitAccess.READ)
    with pytest.raises(ForgePermissionMissing, match="contents: write") as told:
        await connected.adapter.git_credential(repository, GitAccess.WRITE)
    assert told.value.permission == "contents: write"


async def test_github__an_app_that_is_not_installed_is_told_as_such(connect, forge_world):
    connected = await connect(forge_world)
    with pytest.raises(ForgeResourceNotFound, match="not installed on acme/gadgets"):
        await connected.adapter.find_repository("acme/gadgets")


async def test_github__a_failure_of_github_is_worth_a_repeat(adapter, repository, forge_world):
    forge_world.github.fault(path="/issues/1$", status=502, body="<html>bad gateway</html>")
    with pytest.raises(ForgeUnavailable, match="HTTP 502") as told:
        await adapter.get_issue(repository, 1)
    assert told.value.is_repeatable


async def test_github__a_document_that_cannot_be_read_names_the_field(
    adapter, repository, forge_world
):
    forge_world.github.fault(path="/issues/1$", status=200, body={"number": 1})
    with pytest.raises(ForgeUnavailable, match="title is missing"):
        await adapter.get_issue(repository, 1)


@pytest.mark.parametrize("auth", [ForgeAuth.APP, ForgeAuth.TOKEN])
async def test_github__a_check_finds_nothing_missing_where_nothing_is(
    connect, forge_world, caller, auth
):
    connected = await connect(forge_world, auth=auth)
    checked = await connected.forges.check(caller, "github", full_name="acme/widgets")
    assert [each.name for each in checked.facts.missing if each.is_required] == []
    login = "sandbox-agent[bot]" if auth is ForgeAuth.APP else "octocat"
    assert (checked.facts.login, checked.forge.bot_login) == (login, login)
    assert checked.forge.bot_id
    if auth is ForgeAuth.APP:
        assert [each.account for each in checked.facts.installations] == ["acme"]
        assert [each.name for each in checked.facts.missing] == ["workflows"]


async def test_github__a_check_names_what_an_installation_lacks(connect, make_forge_world, caller):
    lacking = {name: access for name, access in PERMISSIONS.items() if name != "issues"}
    world = make_forge_world(permissions=lacking | {"contents": "read"})
    connected = await connect(world)
    checked = await connected.forges.check(caller, "github")
    assert [(each.name, each.access) for each in checked.facts.missing if each.is_required] == [
        ("contents", "write"),
        ("issues", "write"),
    ]


async def test_github__a_check_names_what_a_token_lacks(connect, forge_world, caller):
    connected = await connect(forge_world, auth=ForgeAuth.TOKEN)
    for path in ("/git/refs$", "/actions/runs$"):
        said = {"message": "Resource not accessible by personal access token"}
        forge_world.github.fault(path=path, status=403, body=said)
    checked = await connected.forges.check(caller, "github", full_name="acme/widgets")
    assert [(each.name, each.is_required) for each in checked.facts.missing] == [
        ("contents", True),
        ("actions", False),
    ]
    assert forge_world.list_pulls() == []
