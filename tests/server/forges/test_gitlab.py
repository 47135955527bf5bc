"""The adapter of GitLab. The answers are those that its documentation shows; each request is compared with its Python client."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from sandbox_server.domain.errors import (
    NotSupportedByForge,
    PullExists,
)
from sandbox_server.domain.tasks.forges import (
    CheckConclusion,
    CheckFacts,
    ForgeKind,
    GitAccess,
    PullLifecycle,
    Subject,
)
from tests.server.forges.support import gitlab_description
from tests.server.forges.support.described_api import find_unknown
from tests.server.forges.support.samples import AT, DRAFT
from tests.server.forges.support.scripted_server import Reply, SentRequest


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
_ON_ISSUE = {"noteable_type": "Issue", "noteable_iid": 7}
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


async def test_gitlab__pages_of_events_are_read_up_to_the_instant(reach, scripted):
    def read_page(request):
        page = int(request.query.get("page", ["1"])[0])
        events = [
            {"created_at": at, "note": NOTE | {"id": page, "created_at": at} | _ON_ISSUE}
            for at in [f"2026-01-01T{12 - page:02}:30:00Z"] * 2
        ]
        following = f"{scripted.url}{request.path}?page={page + 1}"
        return Reply(events, headers={"Link": f'<{following}>; rel="next"', "ETag": '"1"'})

    adapter, repository = await _gitlab(reach, scripted, **{"GET /projects/5/events": read_page})
    since = datetime(2026, 1, 1, 9, tzinfo=UTC)
    found = await adapter.list_new_comments(repository, since=since)
    assert [each.id.rpartition("/")[2] for each in found.value] == ["1", "1", "2", "2", "3", "3"]
    assert [each.query.get("page") for each in scripted.sent[1:]] == [None, ["2"], ["3"], ["4"]]
    assert (found.validator, found.read_until) == (None, None)


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
