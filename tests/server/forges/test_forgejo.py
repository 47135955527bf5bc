"""The adapter of Forgejo. The answers are those that its documentation shows; each request is compared with its description."""

from datetime import UTC, datetime, timedelta

import pytest

from sandbox_server.domain.errors import (
    ForgePermissionMissing,
    NotSupportedByForge,
    PullExists,
)
from sandbox_server.domain.tasks.forges import (
    CheckConclusion,
    ForgeKind,
    PullLifecycle,
)
from tests.server.forges.support import forgejo_description
from tests.server.forges.support.described_api import find_unknown
from tests.server.forges.support.samples import AT, DRAFT
from tests.server.forges.support.scripted_server import Reply, SentRequest


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


async def test_forgejo__comments_of_many_pages_are_read_in_several_looks(reach, scripted):
    """Twenty pages of fifty in one look, and the next one begins where the first has ended."""
    path, first = "/repos/acme/widgets/issues/comments", datetime(2026, 1, 1, tzinfo=UTC)
    written = [
        {
            "id": number,
            "body": "@agent",
            "user": {"id": 1, "login": "alice"},
            "created_at": (first + timedelta(minutes=number)).isoformat(),
            "issue_url": "https://forge/acme/widgets/issues/7",
        }
        for number in range(1, 1011)
    ]

    def read_page(request):
        if request.headers.get("If-None-Match") == '"all"':
            return Reply(status=304)
        since = datetime.fromisoformat(request.query["since"][0])
        newer = [each for each in written if str(each["created_at"]) >= since.isoformat()]
        page = int(request.query.get("page", ["1"])[0])
        query = f"since={request.query['since'][0]}&limit=50&page={page + 1}"
        more = {"Link": f'<{scripted.url}{path}?{query}>; rel="next"'} if newer[page * 50 :] else {}
        return Reply(newer[(page - 1) * 50 : page * 50], headers={"ETag": '"all"', **more})

    adapter, repository = await _forgejo(reach, scripted, **{f"GET {path}": read_page})
    found = await adapter.list_new_comments(repository, since=first)
    assert [each.id for each in found.value] == [str(number) for number in range(1, 1001)]
    assert (found.validator, found.read_until) == (None, first + timedelta(minutes=1000))
    rest = await adapter.list_new_comments(repository, since=found.read_until)
    assert [each.id for each in rest.value] == [str(number) for number in range(1000, 1011)]
    assert (rest.validator, rest.read_until) == ('"all"', None)
    later = first + timedelta(days=1)
    again = await adapter.list_new_comments(repository, since=later, validator=rest.validator)
    assert again.value is None


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
