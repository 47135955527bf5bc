"""GitLab, Forgejo and plain git. The answers are those that their documentation shows; no real forge was at hand.

Each request to Forgejo is compared with its description of its API, and each to GitLab with the tables of its Python client.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sandbox_server.domain.errors import (
    ForgePermissionMissing,
    ForgeUnavailable,
    NotSupportedByForge,
    PullExists,
)
from sandbox_server.domain.tasks.forges import (
    CheckConclusion,
    CheckFacts,
    ForgeAuth,
    ForgeKind,
    GitAccess,
    PullDraft,
    PullLifecycle,
    Subject,
)
from sandbox_server.forges.service import ForgeDefinition
from tests.server.forges.support import forgejo_description, gitlab_description
from tests.server.forges.support.described_api import find_unknown
from tests.server.forges.support.git_server import GitAccessOf, git, running_git_server
from tests.server.forges.support.scripted_server import Reply, SentRequest

DRAFT = PullDraft(
    title="fix: count",
    body="Because.\n\nCloses #1",
    head_ref="task-1",
    base_ref="main",
    draft=True,
    labels=["bug"],
)
AT = "2026-01-01T00:00:00Z"


@pytest.fixture
def reach(scripted, make_forges, caller):
    """Store a forge at the scripted server, or at another URL; gives its adapter."""

    async def reach(kind, url=None, **fields):
        url = url or scripted.url
        forges = make_forges(url)
        plain = {"auth": ForgeAuth.TOKEN, "api_url": url, "git_url": url, "secret": "the-token"}
        row, _ = await forges.put(caller, "other", ForgeDefinition(kind=kind, **plain | fields))
        kinds.append(kind)
        return await forges.adapter(row.id)

    kinds = []
    yield reach
    if ForgeKind.FORGEJO in kinds:
        require_described(scripted.sent, forgejo_description.CLIENT, forgejo_description)
    if ForgeKind.GITLAB in kinds:
        require_described(scripted.sent, gitlab_description.OBJECTS, gitlab_description)


def require_described(requests, file, description):
    """Require that a description of the API has the path, the query and the body of each request."""
    if file.exists():  # `make check` does without; `make test` installs it
        operations = description.read_operations()
        assert [unknown for each in requests for unknown in find_unknown(each, operations)] == []


def _merge_request(**fields):
    document = {
        "iid": 4,
        "web_url": "https://gitlab.example/mr/4",
        "state": "opened",
        "draft": True,
        "title": "Draft: fix: count",
        "description": "Because.",
        "source_branch": "task-1",
        "target_branch": "main",
        "sha": "abc",
        "source_project_id": 5,
        "updated_at": AT,
        "detailed_merge_status": "checking",
        "author": {"id": 1, "username": "bot"},
        "new_field_of_gitlab": {"x": 1},
    }
    return document | fields


PROJECT = {
    "id": 5,
    "path_with_namespace": "acme/group/widgets",
    "default_branch": "trunk",
    "visibility": "internal",
    "web_url": "https://gitlab.example/acme/group/widgets",
    "permissions": {"project_access": None, "group_access": {"access_level": 30}},
    "statistics": {"repository_size": 1024},
}
NOTE = {"id": 9, "body": "b", "created_at": AT, "author": {"id": 1, "username": "me"}}


async def _gitlab(reach, scripted, **table):
    routes = {("GET", "/projects/acme%2Fgroup%2Fwidgets"): PROJECT}
    scripted.routes(routes | {tuple(key.split(" ")): value for key, value in table.items()})
    adapter = await reach(ForgeKind.GITLAB)
    return adapter, await adapter.find_repository("acme/group/widgets")


async def test_gitlab__a_project_of_a_group_is_found(reach, scripted):
    adapter, repository = await _gitlab(reach, scripted)
    assert (repository.external_id, repository.default_branch) == ("5", "trunk")
    assert repository.private is True
    assert repository.permissions == {"pull", "push"}
    assert scripted.sent[-1].headers["PRIVATE-TOKEN"] == "the-token"
    credential = await adapter.git_credential(repository, GitAccess.WRITE)
    assert credential.url == f"{scripted.url}/acme/group/widgets.git"
    assert (credential.username, credential.password) == ("oauth2", "the-token")


async def test_gitlab__a_merge_request_goes_its_way(reach, scripted):
    requests = "/projects/5/merge_requests"
    adapter, repository = await _gitlab(
        reach,
        scripted,
        **{
            f"POST {requests}": Reply(_merge_request(), status=201),
            f"GET {requests}": [_merge_request(iid=3, source_project_id=77), _merge_request()],
            f"GET {requests}/4": _merge_request(),
            f"PUT {requests}/4": lambda sent: _merge_request(
                **{
                    key: value
                    for key, value in sent.json().items()
                    if key in ("title", "description")
                }
            ),
        },
    )
    opened = await adapter.open_pull(repository, DRAFT)
    assert scripted.sent[-1].json()["title"] == "Draft: fix: count"
    assert (opened.number, opened.draft, opened.mergeable) == (4, True, None)
    assert opened.head_repository_id == repository.external_id
    assert (await adapter.find_pull(repository, "task-1")).number == 4
    await adapter.update_pull(repository, 4, draft=False)
    assert scripted.sent[-1].json() == {"title": "fix: count"}
    await adapter.update_pull(repository, 4, title="feat: more")
    assert scripted.sent[-1].json() == {"title": "Draft: feat: more"}
    await adapter.update_pull(repository, 4, closed=True)
    assert scripted.sent[-1].json() == {"state_event": "close"}


async def test_gitlab__a_second_merge_request_is_told_as_such(reach, scripted):
    said = {"message": ["Another open merge request already exists for this source branch: !4"]}
    adapter, repository = await _gitlab(
        reach, scripted, **{"POST /projects/5/merge_requests": Reply(said, status=409)}
    )
    with pytest.raises(PullExists, match="!4"):
        await adapter.open_pull(repository, DRAFT)


async def test_gitlab__states_and_merge_status_are_translated(reach, scripted):
    adapter, repository = await _gitlab(reach, scripted)
    path = ("GET", "/projects/5/merge_requests/4")
    for fields, lifecycle, mergeable in (
        ({"state": "merged", "detailed_merge_status": "not_open"}, PullLifecycle.MERGED, True),
        ({"state": "closed", "has_conflicts": True}, PullLifecycle.CLOSED, False),
        ({"state": "opened", "detailed_merge_status": "mergeable"}, PullLifecycle.OPEN, True),
        ({"state": "opened", "detailed_merge_status": "unchecked"}, PullLifecycle.OPEN, None),
    ):
        scripted.routes({path: Reply(_merge_request(**fields), headers={"ETag": 'W/"1"'})})
        told = await adapter.get_pull(repository, 4)
        assert (told.value.lifecycle, told.value.mergeable) == (lifecycle, mergeable)
    scripted.routes({path: Reply(status=304)})
    assert (await adapter.get_pull(repository, 4, validator='W/"1"')).value is None
    assert scripted.sent[-1].headers["If-None-Match"] == 'W/"1"'


async def test_gitlab__issues_and_merge_requests_are_commented_apart(reach, scripted):
    notes = {
        f"{method} /projects/5/{of}/4/notes": answer
        for of in ("issues", "merge_requests")
        for method, answer in (
            ("GET", [NOTE, NOTE | {"id": 10, "system": True}]),
            ("POST", Reply(NOTE, status=201)),
        )
    }
    issue = {"iid": 4, "title": "t", "description": None, "labels": ["bug"], "state": "closed"}
    adapter, repository = await _gitlab(
        reach,
        scripted,
        **notes,
        **{
            "GET /projects/5/issues/4": issue,
            "PUT /projects/5/issues/4/notes/9": NOTE | {"body": "new"},
            "PUT /projects/5/merge_requests/4": _merge_request(),
        },
    )
    read = await adapter.get_issue(repository, 4)
    assert (read.is_open, read.labels, [each.body for each in read.comments]) == (
        False,
        ("bug",),
        ["b"],
    )
    made = await adapter.comment(repository, 4, "b", on=Subject.ISSUE)
    assert (await adapter.edit_comment(repository, made.id, "new")).body == "new"
    found = await adapter.find_comment(repository, 4, "b")
    assert found.id == "merge_requests/4/notes/9"
    await adapter.add_labels(repository, 4, ["a", "b"])
    assert scripted.sent[-1].json() == {"add_labels": "a,b"}
    late = datetime(2027, 1, 1, tzinfo=UTC)
    assert await adapter.list_comments(repository, 4, since=late) == []


async def test_gitlab__a_comment_on_a_commit_is_a_discussion_which_can_be_edited(reach, scripted):
    path = "/projects/5/repository/commits/abc/discussions"
    adapter, repository = await _gitlab(
        reach,
        scripted,
        **{
            f"POST {path}": Reply({"id": "d1", "notes": [NOTE]}, status=201),
            f"GET {path}": [{"id": "d0", "notes": []}, {"id": "d1", "notes": [NOTE]}],
            f"PUT {path}/d1/notes/9": NOTE | {"body": "new"},
        },
    )
    made = await adapter.comment_on_commit(repository, "abc", "b")
    assert await adapter.find_commit_comment(repository, "abc", "b") == made
    assert (await adapter.edit_comment(repository, made.id, "new")).body == "new"
    assert scripted.sent[-1].json() == {"body": "new"}


async def test_gitlab__a_job_is_retried_and_once_only(reach, scripted):
    refused = Reply({"message": "403 Forbidden - Job is not retryable"}, status=403)
    replies = [Reply({"id": 8}, status=201), refused]
    adapter, repository = await _gitlab(
        reach, scripted, **{"POST /projects/5/jobs/7/retry": lambda _: replies.pop(0)}
    )
    job = CheckFacts(external_id="7", name="unit", origin="job", is_done=True)
    await adapter.rerun_checks(repository, [job])
    await adapter.rerun_checks(repository, [job])
    assert replies == []
    with pytest.raises(NotSupportedByForge, match="pipelines"):
        await adapter.rerun_checks(repository, [replace(job, origin="status")])


async def test_gitlab__labels_and_comments_since_an_instant_are_found(reach, scripted):
    event = {"action": "add", "label": {"name": "agent"}, "created_at": AT}
    note = NOTE | {"noteable_type": "MergeRequest", "noteable_iid": 4, "body": "@agent"}
    adapter, repository = await _gitlab(
        reach,
        scripted,
        **{
            "GET /projects/5/issues": [{"iid": 7, "title": "t"}],
            "GET /projects/5/issues/7/resource_label_events": [
                event | {"user": {"id": 1, "username": "alice"}},
                event | {"action": "remove"},
            ],
            "GET /projects/5/events": [{"note": note}, {"note": None}],
        },
    )
    since = datetime(2026, 1, 1, tzinfo=UTC)
    [labelling] = (await adapter.list_labellings(repository, "agent", since=since)).value
    assert (labelling.number, labelling.actor) == (7, "alice")
    [comment] = (await adapter.list_new_comments(repository, since=since)).value
    assert (comment.number, comment.is_on_pull) == (4, True)
    assert comment.id == "merge_requests/4/notes/9"
    assert scripted.sent[-1].query["after"] == ["2025-12-31"]


@pytest.mark.skipif(not gitlab_description.OBJECTS.exists(), reason="run scripts/test-programs")
def test_gitlab__a_request_that_its_client_does_not_have_is_found():
    operations = gitlab_description.read_operations()
    body = b'{"source_branch": "a", "target_branch": "b", "title": "c", "draft": true}'
    posted = SentRequest("POST", "/projects/5/merge_requests", {}, {}, body)
    assert find_unknown(posted, operations) == ["POST /projects/5/merge_requests: draft"]
    asked = SentRequest("GET", "/projects/5/issues", {"updated_since": ["x"]}, {}, b"")
    assert find_unknown(asked, operations) == ["GET /projects/5/issues: updated_since"]
    retried = SentRequest("POST", "/projects/5/jobs/7/rerun", {}, {}, b"")
    assert find_unknown(retried, operations) == ["POST /projects/5/jobs/7/rerun"]


async def test_gitlab__a_discussion_is_a_review(reach, scripted):
    position = {"new_path": "x.py", "new_line": 3}
    adapter, repository = await _gitlab(
        reach,
        scripted,
        **{
            "GET /projects/5/merge_requests/4/discussions/d1": {
                "id": "d1",
                "notes": [NOTE | {"position": position}],
            },
            "POST /projects/5/merge_requests/4/discussions/d1/notes": Reply(NOTE, status=201),
        },
    )
    review = await adapter.get_review(repository, 4, "d1")
    assert [(each.path, each.line, each.body) for each in review.comments] == [("x.py", 3, "b")]
    await adapter.reply_to_review(repository, 4, review.comments[0].thread_id, "done")
    assert scripted.sent[-1].json() == {"body": "done"}


async def test_gitlab__jobs_are_checks_with_logs(reach, scripted):
    jobs = "https://gitlab.example/acme/-/jobs"
    statuses = [
        {"id": 1, "name": "unit", "status": "failed", "target_url": f"{jobs}/1"},
        {
            "id": 2,
            "name": "lint",
            "status": "failed",
            "allow_failure": True,
            "target_url": f"{jobs}/2",
        },
        {"id": 3, "name": "e2e", "status": "running", "target_url": f"{jobs}/3"},
        {"id": 4, "name": "ext", "status": "success", "target_url": None, "description": "ok"},
    ]
    adapter, repository = await _gitlab(
        reach,
        scripted,
        **{
            "GET /projects/5/repository/commits/abc/statuses": statuses,
            "GET /projects/5/jobs/1/trace": Reply(body=b"x" * 200_000 + b"the end"),
        },
    )
    checks = (await adapter.list_checks(repository, "abc")).value
    assert [(each.name, each.origin, each.is_done, each.conclusion) for each in checks] == [
        ("unit", "job", True, CheckConclusion.FAILURE),
        ("lint", "job", True, CheckConclusion.NEUTRAL),
        ("e2e", "job", False, None),
        ("ext", "status", True, CheckConclusion.SUCCESS),
    ]
    assert await adapter.read_check_log(repository, checks[0], max_bytes=7) == b"the end"
    assert await adapter.read_check_log(repository, checks[1], max_bytes=7) == b""


async def test_gitlab__members_from_developer_on_may_write(reach, scripted):
    members = [
        {"id": 1, "username": "dev", "access_level": 30},
        {"id": 2, "username": "reporter", "access_level": 20},
        {"id": 3, "username": "dev2", "access_level": 50},
    ]
    adapter, repository = await _gitlab(reach, scripted, **{"GET /projects/5/members/all": members})
    told = [await adapter.may_write(repository, name) for name in ("dev", "reporter", "nobody")]
    assert told == [True, False, False]


async def test_gitlab__reviewers_are_requested_by_their_ids(reach, scripted):
    adapter, repository = await _gitlab(
        reach,
        scripted,
        **{
            "GET /users": [{"id": 12, "username": "me"}],
            "PUT /projects/5/merge_requests/4": _merge_request(),
        },
    )
    await adapter.request_reviewers(repository, 4, ["me"])
    assert scripted.sent[-1].json() == {"reviewer_ids": [12]}


async def test_gitlab__a_check_names_scopes_and_roles_that_are_missing(reach, scripted):
    guest = PROJECT | {"permissions": {"project_access": {"access_level": 20}}}
    scripted.routes(
        {
            ("GET", "/projects/acme%2Fgroup%2Fwidgets"): guest,
            ("GET", "/user"): {"id": 1, "username": "project_5_bot"},
            ("GET", "/personal_access_tokens/self"): {
                "scopes": ["read_api"],
                "expires_at": "2027-01-31",
            },
        }
    )
    adapter = await reach(ForgeKind.GITLAB)
    facts = await adapter.inspect("acme/group/widgets")
    assert (facts.login, facts.expires_at) == ("project_5_bot", datetime(2027, 1, 31, tzinfo=UTC))
    assert [each.name for each in facts.missing] == ["api", "role Developer"]


def _forgejo_pull(**fields):
    head = {"ref": "task-1", "sha": "abc", "repo": {"id": 5}}
    document = {
        "number": 4,
        "state": "open",
        "draft": True,
        "title": "WIP: fix: count",
        "body": "b",
        "html_url": "https://codeberg.example/4",
        "head": head,
        "base": head | {"ref": "main"},
        "updated_at": AT,
        "user": {"id": 1, "login": "me"},
        "requested_reviewers": None,
    }
    return document | fields


REPOSITORY = {
    "id": 5,
    "full_name": "acme/widgets",
    "default_branch": "main",
    "private": False,
    "html_url": "https://codeberg.example/acme/widgets",
    "size": 12,
    "permissions": {"admin": False, "push": True, "pull": True},
}


async def _forgejo(reach, scripted, **table):
    routes = {("GET", "/repos/acme/widgets"): REPOSITORY}
    scripted.routes(routes | {tuple(key.split(" ")): value for key, value in table.items()})
    adapter = await reach(ForgeKind.FORGEJO)
    return adapter, await adapter.find_repository("acme/widgets")


async def test_forgejo__a_pull_request_goes_its_way(reach, scripted):
    pulls = "/repos/acme/widgets/pulls"
    other = _forgejo_pull(number=7, head={"ref": "task-1", "sha": "x", "repo": {"id": 66}})
    adapter, repository = await _forgejo(
        reach,
        scripted,
        **{
            f"POST {pulls}": Reply(_forgejo_pull(), status=201),
            f"GET {pulls}": [_forgejo_pull(number=2, state="closed"), other, _forgejo_pull()],
            f"GET {pulls}/4": _forgejo_pull(),
            f"PATCH {pulls}/4": _forgejo_pull(),
        },
    )
    assert scripted.sent[-1].headers["Authorization"] == "token the-token"
    opened = await adapter.open_pull(repository, DRAFT)
    assert scripted.sent[-1].json()["title"] == "WIP: fix: count"
    assert (opened.number, opened.head_repository_id) == (4, repository.external_id)
    assert (await adapter.find_pull(repository, "task-1")).number == 4
    assert await adapter.find_pull(repository, "task-2") is None
    await adapter.update_pull(repository, 4, draft=False)
    assert scripted.sent[-1].json() == {"title": "fix: count"}
    scripted.routes({("POST", pulls): Reply({"message": "pull request already exists"}, 409)})
    with pytest.raises(PullExists):
        await adapter.open_pull(repository, DRAFT)


async def test_forgejo__statuses_reviews_and_permissions_are_read(reach, scripted):
    review = {"id": 8, "state": "REQUEST_CHANGES", "body": "no", "submitted_at": AT}
    comment = {"id": 3, "body": "here", "path": "x", "position": 2, "created_at": AT}
    statuses = [
        {"id": 1, "context": "ci / unit", "status": "failure", "description": "1 failed"},
        {"id": 2, "context": "ci / e2e", "status": "pending"},
        {"id": 3, "context": "ci / lint", "status": "warning"},
    ]
    base = "/repos/acme/widgets"
    adapter, repository = await _forgejo(
        reach,
        scripted,
        **{
            f"GET {base}/commits/abc/status": {"statuses": statuses},
            f"GET {base}/pulls/4/reviews": [review, review | {"id": 9, "state": "PENDING"}],
            f"GET {base}/pulls/4/reviews/8": review,
            f"GET {base}/pulls/4/reviews/8/comments": [comment],
            f"GET {base}/collaborators/me/permission": {"permission": "write"},
            f"GET {base}/collaborators/you/permission": {"permission": "read"},
        },
    )
    checks = (await adapter.list_checks(repository, "abc")).value
    assert [(each.name, each.is_done, each.conclusion) for each in checks] == [
        ("ci / unit", True, CheckConclusion.FAILURE),
        ("ci / e2e", False, None),
        ("ci / lint", True, CheckConclusion.NEUTRAL),
    ]
    assert await adapter.read_check_log(repository, checks[0], max_bytes=100) == b"1 failed"
    read = await adapter.get_review(repository, 4, "8")
    assert (read.state, [each.path for each in read.comments]) == ("changes_requested", ["x"])
    assert [each.id for each in await adapter.list_reviews(repository, 4)] == ["8"]
    told = [await adapter.may_write(repository, name) for name in ("me", "you", "nobody")]
    assert told == [True, False, False]


async def test_forgejo__labels_and_comments_since_an_instant_are_found(reach, scripted):
    path, user = "/repos/acme/widgets/issues", {"id": 1, "login": "alice"}
    event = {"type": "label", "label": {"name": "agent"}, "user": user, "created_at": AT}
    comment = {"id": 9, "body": "@agent", "user": user, "created_at": AT}
    of_pull = comment | {"issue_url": "", "pull_request_url": "https://forge/acme/widgets/pulls/4"}
    adapter, repository = await _forgejo(
        reach,
        scripted,
        **{
            f"GET {path}": [{"number": 7, "title": "t"}],
            f"GET {path}/7/timeline": [event | {"body": "1"}, event | {"body": ""}],
            f"GET {path}/comments": [
                comment | {"issue_url": "https://forge/acme/widgets/issues/7"},
                of_pull,
            ],
        },
    )
    since = datetime(2026, 1, 1, tzinfo=UTC)
    [labelling] = (await adapter.list_labellings(repository, "agent", since=since)).value
    assert (labelling.number, labelling.actor) == (7, "alice")
    found = (await adapter.list_new_comments(repository, since=since)).value
    assert [(each.number, each.is_on_pull) for each in found] == [(7, False), (4, True)]
    with pytest.raises(NotSupportedByForge):
        await adapter.rerun_checks(repository, [])
    with pytest.raises(NotSupportedByForge):
        await adapter.comment_on_commit(repository, "abc", "b")


async def test_forgejo__issues_and_pull_requests_are_commented_and_labelled(reach, scripted):
    base, user = "/repos/acme/widgets", {"id": 1, "login": "me"}
    comment = {"id": 9, "body": "b", "user": user, "created_at": AT}
    adapter, repository = await _forgejo(
        reach,
        scripted,
        **{
            "GET /user": user,
            f"GET {base}/pulls": [],
            f"GET {base}/issues": [],
            f"GET {base}/issues/4": {"number": 4, "title": "t", "user": user, "state": "open"},
            f"GET {base}/issues/4/comments": [comment],
            f"POST {base}/issues/4/comments": Reply(comment, status=201),
            f"PATCH {base}/issues/comments/9": comment | {"body": "new"},
            f"POST {base}/issues/4/labels": [],
            f"POST {base}/pulls/4/requested_reviewers": Reply([], status=201),
            f"GET {base}/pulls/4": _forgejo_pull(),
            f"PATCH {base}/pulls/4": _forgejo_pull(state="closed"),
        },
    )
    assert (await adapter.inspect("acme/widgets")).login == "me"
    assert (await adapter.get_issue(repository, 4)).comments[0].body == "b"
    made = await adapter.comment(repository, 4, "b")
    assert (await adapter.edit_comment(repository, made.id, "new")).body == "new"
    assert (await adapter.find_comment(repository, 4, "b")).id == made.id
    await adapter.add_labels(repository, 4, ["bug"])
    await adapter.request_reviewers(repository, 4, ["alice", "acme/team"])
    assert scripted.sent[-1].json() == {"reviewers": ["alice"], "team_reviewers": ["team"]}
    closed = await adapter.update_pull(repository, 4, body="done", closed=True)
    assert closed.lifecycle is PullLifecycle.CLOSED
    since = datetime(2027, 1, 1, tzinfo=UTC)
    await adapter.list_comments(repository, 4, since=since)


@pytest.mark.skipif(not forgejo_description.CLIENT.exists(), reason="run scripts/test-programs")
def test_forgejo__a_request_that_is_not_described_is_found():
    operations = forgejo_description.read_operations()
    sent = SentRequest(
        "GET", "/repos/acme/widgets/issues", {"labels": ["a"], "per_page": ["9"]}, {}, b""
    )
    assert find_unknown(sent, operations) == ["GET /repos/acme/widgets/issues: per_page"]
    posted = SentRequest(
        "POST", "/repos/acme/widgets/pulls", {}, {}, b'{"head": "a", "draft": true}'
    )
    assert find_unknown(posted, operations) == ["POST /repos/acme/widgets/pulls: draft"]
    merged = SentRequest("GET", "/repos/acme/widgets/merge_requests", {}, {}, b"")
    assert find_unknown(merged, operations) == ["GET /repos/acme/widgets/merge_requests"]


async def test_forgejo__a_missing_scope_is_told(reach, scripted):
    said = {"message": "token does not have at least one of required scope(s): [write:issue]"}
    adapter, repository = await _forgejo(
        reach, scripted, **{"POST /repos/acme/widgets/issues/1/comments": Reply(said, status=403)}
    )
    with pytest.raises(ForgePermissionMissing, match="write:issue"):
        await adapter.comment(repository, 1, "b")


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
