"""Webhooks over HTTP: who may deliver, what is stored, and what happens to hostile requests."""

import asyncio
import hashlib
import hmac
import json
import re

import pytest
from sqlalchemy import delete, func, select
from sqlalchemy import event as sql_event

from sandbox_server.app import create_app
from sandbox_server.db.models import Forge, Job, Repository, WebhookDelivery
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.tasks.delivery_outcomes import NO_REPOSITORY, NOT_OURS
from sandbox_server.forges.sealed import seal_secret, seal_webhook_secret
from sandbox_server.forges.webhook_bodies import LARGEST_BODY
from sandbox_server.jobs.kinds import WEBHOOK_DELIVERY
from tests.server.forges.support.github_emulator import PROGRAMS
from tests.server.http.test_problems import assert_problem
from tests.server.support.api_fixtures import caller_of, find_or_make

SECRET = "a secret of the test"
EXAMPLES = PROGRAMS / "@octokit" / "webhooks-examples" / "api.github.com"
_PAGES = {
    "issues": "issue",
    "issue_comment": "issue",
    "pull_request": "pull_request",
    "pull_request_review": "pull_request",
    "pull_request_review_comment": "pull_request",
}
"""Events about something that has a page, and which that is."""
_WITH_TWO_NUMBERS = "hellomouse/GNS"  # the number in this example is not that of its page
_OF_COMMITS = {"check_run", "check_suite", "workflow_run", "workflow_job", "status", "push"}

ISSUE = {
    "action": "labeled",
    "issue": {"number": 7},
    "label": {"name": "agent"},
    "repository": {"id": 1001, "full_name": "acme/widgets"},
    "sender": {"login": "alice", "type": "User"},
}


def signed(document, *, secret=SECRET, event="issues", delivery="d-1"):
    body = json.dumps(document).encode() if not isinstance(document, bytes) else document
    signature = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    headers = {
        "X-Hub-Signature-256": f"sha256={signature}",
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": delivery,
        "Content-Type": "application/json",
    }
    return {"content": body, "headers": headers}


@pytest.fixture
async def forge_id(sessions, vault):
    forge_id = new_id()
    async with sessions.begin() as session:
        session.add(
            Forge(
                id=forge_id,
                tenant_id=await find_or_make(session, "default"),
                name="github",
                kind="github",
                api_url="https://api.github.com",
                git_url="https://github.com",
                auth="token",
                secret_sealed=seal_secret(vault, forge_id, "a token"),
                webhook_secret_sealed=seal_webhook_secret(vault, forge_id, SECRET),
            )
        )
    return forge_id


@pytest.fixture
async def repository_id(sessions, forge_id):
    """Add the repository of `ISSUE`."""
    async with sessions.begin() as session:
        row = Repository(
            id=new_id(),
            tenant_id=(await session.get_one(Forge, forge_id)).tenant_id,
            forge_id=forge_id,
            external_id="1001",
            full_name="acme/widgets",
            url="https://github.com/acme/widgets",
            default_branch="main",
            private=True,
            settings={},
        )
        session.add(row)
    return row.id


@pytest.fixture
async def outside(app):
    """Call the server without a key, as a forge does."""
    async with caller_of(app) as outside:
        yield outside


@pytest.fixture
async def reader(app, make_key):
    async with caller_of(app, await make_key(scopes=["sandboxes"])) as reader:
        yield reader


async def stored(sessions):
    async with sessions() as session:
        return (await session.scalars(select(WebhookDelivery).order_by(WebhookDelivery.id))).all()


async def count_jobs(sessions):
    async with sessions() as session:
        query = select(func.count()).where(Job.kind == WEBHOOK_DELIVERY)
        return await session.scalar(query)


@pytest.mark.skipif(not EXAMPLES.exists(), reason="run scripts/test-programs")
async def test_every_example_of_an_event_that_is_read_is_accepted_and_read(
    outside, sessions, forge_id
):
    """The pages that the examples link to tell what they are about."""
    index = json.loads((EXAMPLES / "index.json").read_text())
    examples = [(event["name"], each) for event in index for each in event["examples"]]
    read = [(event, each) for event, each in examples if event in {*_PAGES, *_OF_COMMITS}]
    for number, (event, document) in enumerate(read):
        delivery = signed(document, event=event, delivery=f"d-{number}")
        answer = await outside.post(f"/v1/webhooks/{forge_id}", **delivery)
        assert answer.status_code == 202, (event, answer.text)
    assert len(read) == 118
    for (event, document), row in zip(read, await stored(sessions), strict=True):
        assert row.actor == document["sender"]["login"]
        assert row.action == document.get("action", event)
        if event in _OF_COMMITS:
            assert re.fullmatch("[0-9a-f]{40}|refs/(heads|tags)/.+", row.subject), event
        elif _WITH_TWO_NUMBERS not in document[_PAGES[event]]["html_url"]:
            page = document[_PAGES[event]]["html_url"]
            assert page.endswith((f"/issues/{row.subject}", f"/pull/{row.subject}")), page


async def test_a_signed_delivery_is_stored_with_its_job(outside, sessions, forge_id, repository_id):
    answer = await outside.post(f"/v1/webhooks/{forge_id}", **signed(ISSUE))
    assert (answer.status_code, answer.json()["is_new"]) == (202, True)
    [row] = await stored(sessions)
    assert (row.kind, row.action, row.subject, row.actor) == ("issue", "labeled", "7", "alice")
    assert (row.repository, row.repository_name) == ("1001", "acme/widgets")
    assert json.loads(row.body) == ISSUE
    async with sessions() as session:
        [job] = await session.scalars(select(Job).where(Job.kind == WEBHOOK_DELIVERY))
    assert job.subject == row.id == answer.json()["id"]


@pytest.mark.parametrize(
    ("repository", "outcome"),
    [(1002, NOT_OURS), (None, NO_REPOSITORY), (1001, NOT_OURS)],
    ids=["another", "none", "removed"],
)
async def test_a_delivery_about_no_repository_of_ours_is_finished_with_its_receipt(
    outside, reader, sessions, forge_id, repository_id, repository, outcome
):
    if repository == 1001:
        async with sessions.begin() as session:
            (await session.get_one(Repository, repository_id)).removed_at = func.now()
    document = {**ISSUE, "repository": {"id": repository}}
    answer = await outside.post(f"/v1/webhooks/{forge_id}", **signed(document))
    assert answer.status_code == 202
    [listed] = (await reader.get("/v1/deliveries")).json()["items"]
    assert listed["outcome"] == outcome
    assert listed["done_at"] is not None
    assert await count_jobs(sessions) == 0
    retried = await reader.post(f"/v1/deliveries/{listed['id']}/retry")
    assert (retried.status_code, retried.json()["done_at"]) == (202, None)
    assert await count_jobs(sessions) == 1


async def test_a_delivery_costs_one_statement(outside, sessions, forge_id, repository_id):
    await outside.post(f"/v1/webhooks/{forge_id}", **signed(ISSUE))
    engine, statements = sessions.kw["bind"].sync_engine, []

    def note(_connection, _cursor, statement, *_):
        statements.append(statement)

    sql_event.listen(engine, "before_cursor_execute", note)
    document = {**ISSUE, "action": "opened"}
    answer = await outside.post(f"/v1/webhooks/{forge_id}", **signed(document, delivery="d-2"))
    sql_event.remove(engine, "before_cursor_execute", note)
    assert answer.status_code == 202
    assert [statement.split()[0] for statement in statements] == ["WITH"]


async def test_a_changed_secret_holds_at_once_at_servers_that_have_seen_the_old_one(
    outside, sessions, vault, forge_id
):
    await outside.post(f"/v1/webhooks/{forge_id}", **signed(ISSUE))
    async with sessions.begin() as session:  # as another server does
        row = await session.get_one(Forge, forge_id)
        row.webhook_secret_sealed = seal_webhook_secret(vault, forge_id, "the new secret")
    document = {**ISSUE, "action": "opened"}
    old = await outside.post(f"/v1/webhooks/{forge_id}", **signed(document, delivery="d-2"))
    assert_problem(old, status=401, code="signature-refused")
    new = signed(document, delivery="d-2", secret="the new secret")
    assert (await outside.post(f"/v1/webhooks/{forge_id}", **new)).status_code == 202
    assert len(await stored(sessions)) == 2


@pytest.mark.parametrize("removed", ["secret", "forge"])
async def test_what_is_removed_accepts_nothing_more(outside, sessions, forge_id, removed):
    await outside.post(f"/v1/webhooks/{forge_id}", **signed(ISSUE))
    async with sessions.begin() as session:
        row = await session.get_one(Forge, forge_id)
        if removed == "secret":
            row.webhook_secret_sealed = None
        else:
            row.removed_at = func.now()
    document = {**ISSUE, "action": "opened"}
    for request in (signed(document, delivery="d-2"), signed(ISSUE)):
        answer = await outside.post(f"/v1/webhooks/{forge_id}", **request)
        if removed == "secret":
            assert_problem(answer, status=401, code="signature-refused")
        else:
            assert_problem(answer, status=404, code="forge-not-found")
    assert len(await stored(sessions)) == 1


async def test_a_repeated_delivery_is_known(outside, sessions, forge_id, repository_id):
    first = await outside.post(f"/v1/webhooks/{forge_id}", **signed(ISSUE))
    again = await outside.post(f"/v1/webhooks/{forge_id}", **signed(ISSUE))
    assert (again.status_code, again.json()) == (200, {"id": first.json()["id"], "is_new": False})
    assert len(await stored(sessions)) == await count_jobs(sessions) == 1


async def test_a_delivery_that_is_replayed_under_another_id_is_known(outside, sessions, forge_id):
    await outside.post(f"/v1/webhooks/{forge_id}", **signed(ISSUE, delivery="d-1"))
    replayed = await outside.post(f"/v1/webhooks/{forge_id}", **signed(ISSUE, delivery="d-2"))
    assert replayed.status_code == 200
    assert len(await stored(sessions)) == 1


@pytest.mark.parametrize(
    "change",
    [
        {"X-Hub-Signature-256": "sha256=" + "0" * 64},
        {"X-Hub-Signature-256": ""},
        {"X-Hub-Signature-256": "sha1=" + "0" * 40},
        {"X-Hub-Signature-256": "sha256=é".encode("latin-1").decode("latin-1")},
    ],
)
async def test_a_wrong_signature_is_refused_and_nothing_is_stored(
    outside, sessions, forge_id, change
):
    request = signed(ISSUE)
    headers = {**request["headers"], **change}
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    answer = await outside.post(f"/v1/webhooks/{forge_id}", content=request["content"], headers=raw)
    assert_problem(answer, status=401, code="signature-refused")
    assert await stored(sessions) == []


async def test_a_body_that_was_changed_on_the_way_is_refused(outside, sessions, forge_id):
    request = signed(ISSUE)
    request["content"] = request["content"].replace(b"alice", b"mallory")
    answer = await outside.post(f"/v1/webhooks/{forge_id}", **request)
    assert_problem(answer, status=401, code="signature-refused")
    assert await stored(sessions) == []


async def test_the_secret_of_another_forge_is_refused(outside, sessions, forge_id):
    answer = await outside.post(f"/v1/webhooks/{forge_id}", **signed(ISSUE, secret="other"))
    assert_problem(answer, status=401, code="signature-refused")


async def test_a_forge_without_a_webhook_secret_accepts_nothing(outside, sessions, forge_id):
    async with sessions.begin() as session:
        (await session.get_one(Forge, forge_id)).webhook_secret_sealed = None
    answer = await outside.post(f"/v1/webhooks/{forge_id}", **signed(ISSUE, secret=""))
    assert_problem(answer, status=401, code="signature-refused")


@pytest.mark.parametrize("forge", ["0" * 20, "x", "..%2Fkeys"])
async def test_an_unknown_forge_is_not_found(outside, forge):
    answer = await outside.post(f"/v1/webhooks/{forge}", **signed(ISSUE))
    assert answer.status_code in {404, 401}


async def test_a_huge_body_is_refused_before_it_is_complete(outside, forge_id):
    sent = 0

    async def endless():
        nonlocal sent
        for _ in range(100):
            sent += 2**20
            yield b"x" * 2**20

    answer = await outside.post(
        f"/v1/webhooks/{forge_id}", content=endless(), headers=signed(b"")["headers"]
    )
    assert_problem(answer, status=413, code="body-too-large")
    assert sent <= LARGEST_BODY + 2 * 2**20


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b'"x"', b"\xff\xfe", b"[" * 100_000])
async def test_a_signed_body_that_is_no_object_is_an_error_and_no_crash(
    outside, sessions, forge_id, body
):
    answer = await outside.post(f"/v1/webhooks/{forge_id}", **signed(body))
    assert 400 <= answer.status_code < 500
    assert await stored(sessions) == []


async def test_text_that_the_database_cannot_hold_is_stored(outside, sessions, forge_id):
    document = {**ISSUE, "action": "a\0b\ud800", "sender": {"login": "x" * 10_000}}
    body = json.dumps(document).encode()
    answer = await outside.post(f"/v1/webhooks/{forge_id}", **signed(body))
    assert answer.status_code == 202
    [row] = await stored(sessions)
    assert row.action == "ab?"
    assert len(row.actor) == 500


async def test_a_large_delivery_is_stored_without_its_body(outside, sessions, forge_id):
    document = {**ISSUE, "padding": "x" * (2**20 + 1)}
    answer = await outside.post(f"/v1/webhooks/{forge_id}", **signed(document))
    assert answer.status_code == 202
    [row] = await stored(sessions)
    assert (row.subject, row.body) == ("7", None)


async def test_two_servers_that_get_a_delivery_at_once_store_it_once(
    app, components, sessions, forge_id, repository_id
):
    replica = create_app(components)
    async with caller_of(app) as one, caller_of(replica) as other:
        answers = await asyncio.gather(
            *(
                outside.post(f"/v1/webhooks/{forge_id}", **signed(ISSUE, delivery=f"d-{number}"))
                for number in range(5)
                for outside in (one, other)
            )
        )
    assert sorted(answer.status_code for answer in answers) == [200] * 9 + [202]
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert len(await stored(sessions)) == await count_jobs(sessions) == 1


async def test_deliveries_are_listed_newest_first_for_their_tenant_only(
    app, outside, reader, make_key, forge_id
):
    for number in range(3):
        document = {**ISSUE, "issue": {"number": number}}
        await outside.post(f"/v1/webhooks/{forge_id}", **signed(document, delivery=f"d-{number}"))
    page = (await reader.get("/v1/deliveries", params={"limit": 2})).json()
    assert [item["subject"] for item in page["items"]] == ["2", "1"]
    rest = (await reader.get("/v1/deliveries", params={"cursor": page["next_cursor"]})).json()
    assert [item["subject"] for item in rest["items"]] == ["0"]
    assert (await reader.get("/v1/deliveries", params={"forge": "other"})).json()["items"] == []
    async with caller_of(app, await make_key(tenant="other", scopes=["sandboxes"])) as stranger:
        assert (await stranger.get("/v1/deliveries")).json()["items"] == []
        answer = await stranger.post(f"/v1/deliveries/{page['items'][0]['id']}/retry")
        assert_problem(answer, status=404, code="delivery-not-found")


async def test_a_processed_delivery_can_be_processed_again(outside, reader, sessions, forge_id):
    receipt = (await outside.post(f"/v1/webhooks/{forge_id}", **signed(ISSUE))).json()
    async with sessions.begin() as session:
        row = await session.get_one(WebhookDelivery, receipt["id"])
        row.done_at, row.outcome = func.now(), "Ignored."
        await session.execute(delete(Job))
    answer = await reader.post(f"/v1/deliveries/{receipt['id']}/retry")
    assert (answer.status_code, answer.json()["done_at"]) == (202, None)
    assert await count_jobs(sessions) == 1


async def test_deliveries_need_a_key(outside):
    assert_problem(await outside.get("/v1/deliveries"), status=401, code="unauthenticated")
