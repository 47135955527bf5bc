"""Requests to forges: limits that all servers honour, failures, redirects, and what is never told."""

import asyncio
import itertools
import logging
import ssl
import time
from datetime import UTC, datetime, timedelta

import pytest
import trustme
from sqlalchemy import select, update

from sandbox_server.db.models import ForgeBudget
from sandbox_server.domain.errors import ForgeHostNotAllowed, ForgeLimited, ForgeUnavailable
from sandbox_server.domain.tasks.forges import CheckFacts, ForgeAuth, ForgeKind
from sandbox_server.forges.connection.answers import Limits, pause_after
from sandbox_server.forges.service import ForgeDefinition
from tests.server.forges.support.scripted_server import Reply, scripted_server

TOKEN = "github_pat_never_to_be_seen"
REPOSITORY = {"id": 1, "full_name": "acme/widgets", "default_branch": "main"}
COMMENT = {"id": 1, "body": "b", "created_at": "2026-01-01T00:00:00Z"}
ISSUE = {"number": 1, "title": "t"}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def table():
    return {
        ("GET", "/repos/acme/widgets"): REPOSITORY,
        ("GET", "/repos/acme/widgets/issues/1"): ISSUE,
        ("GET", "/repos/acme/widgets/issues/1/comments"): [],
        ("POST", "/repos/acme/widgets/issues/1/comments"): Reply(COMMENT, status=201),
    }


@pytest.fixture
def reach(scripted, make_forges, caller, table):
    """Store the scripted server as a GitHub; gives use cases, adapter and repository."""
    scripted.routes(table)

    async def reach(**options):
        forges = make_forges(scripted.url, **options)
        definition = ForgeDefinition(
            kind=ForgeKind.GITHUB,
            auth=ForgeAuth.TOKEN,
            api_url=scripted.url,
            git_url=scripted.url,
            secret=TOKEN,
        )
        row, _ = await forges.put(caller, "github", definition)
        adapter = await forges.adapter(row.id)
        return forges, adapter, await adapter.find_repository("acme/widgets")

    return reach


def _pause(told):
    assert told.value.retry_after is not None
    return told.value.retry_after


@pytest.fixture
def elsewhere(monkeypatch, tmp_path):
    """Run another host with TLS, which the server trusts."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(tls)
    with scripted_server(tls) as server:
        yield server


async def _pass_time(sessions, duration):
    """Let the limits be older than they are."""
    columns = ("paused_until", "last_write_at", "minute_began_at", "hour_began_at", "reset_at")
    older = {name: getattr(ForgeBudget, name) - duration for name in columns}
    async with sessions.begin() as session:
        await session.execute(update(ForgeBudget).values(**older))


@pytest.mark.parametrize("status", [403, 429])
async def test_limits__retry_after_is_honoured_by_every_server(
    reach, scripted, make_forges, table, sessions, caller, status
):
    _, adapter, repository = await reach()
    table["GET", "/repos/acme/widgets/issues/1"] = Reply(
        {"message": "You have exceeded a secondary rate limit."},
        status=status,
        headers={"Retry-After": "90"},
    )
    with pytest.raises(ForgeLimited) as told:
        await adapter.get_issue(repository, 1)
    assert told.value.is_repeatable
    assert _pause(told) == timedelta(seconds=90)
    asked = len(scripted.sent)
    other = make_forges(scripted.url)
    adapter_there = await other.adapter((await other.get(caller, "github")).id)
    for each in (adapter, adapter_there):
        with pytest.raises(ForgeLimited) as told:
            await each.find_repository("acme/widgets")
        assert timedelta(seconds=60) < _pause(told) <= timedelta(seconds=90)
    assert len(scripted.sent) == asked
    table["GET", "/repos/acme/widgets/issues/1"] = ISSUE
    await _pass_time(sessions, timedelta(seconds=91))
    assert (await adapter_there.get_issue(repository, 1)).number == 1


async def test_limits__an_exhausted_quota_is_honoured_until_its_reset(reach, scripted, table):
    _, adapter, repository = await reach()
    reset = int(time.time()) + 1800
    table["GET", "/repos/acme/widgets/issues/1"] = Reply(
        {"message": "API rate limit exceeded"},
        status=403,
        headers={
            "X-RateLimit-Limit": "5000",
            "X-RateLimit-Remaining": "0",
            "X-RateLimit-Reset": str(reset),
            "X-RateLimit-Resource": "core",
        },
    )
    with pytest.raises(ForgeLimited):
        await adapter.get_issue(repository, 1)
    asked = len(scripted.sent)
    with pytest.raises(ForgeLimited) as told:
        await adapter.get_issue(repository, 1)
    assert timedelta(minutes=28) < _pause(told) <= timedelta(minutes=30)
    assert len(scripted.sent) == asked


async def test_limits__the_quota_is_stored_as_the_forge_reports_it(reach, table, sessions, caller):
    _forges, adapter, repository = await reach()
    table["GET", "/repos/acme/widgets/issues/1"] = Reply(
        ISSUE, headers={"X-RateLimit-Limit": "15000", "X-RateLimit-Remaining": "14999"}
    )
    await adapter.get_issue(repository, 1)
    async with sessions() as session:
        row = (await session.scalars(select(ForgeBudget))).one()
    assert (row.account, row.resource, row.quota, row.remaining) == ("token", "core", 15000, 14999)


@pytest.mark.parametrize(
    ("limits", "strikes", "pause"),
    [
        (Limits(retry_after=timedelta(seconds=7), remaining=0, reset_at=NOW), 0, 7),
        (Limits(remaining=0, reset_at=NOW + timedelta(minutes=5)), 3, 300),
        (Limits(remaining=0, reset_at=NOW - timedelta(minutes=5)), 0, 1),
        (Limits(), 0, 60),
        (Limits(), 2, 240),
        (Limits(), 50, 3600),
    ],
)
def test_limits__a_pause_follows_the_documented_order(limits, strikes, pause):
    assert pause_after(limits, now=NOW, strikes=strikes) == timedelta(seconds=pause)


async def test_limits__repeated_secondary_limits_pause_longer(reach, table, sessions):
    _, adapter, repository = await reach()
    table["GET", "/repos/acme/widgets/issues/1"] = Reply(
        {"message": "You have exceeded a secondary rate limit."}, status=403
    )
    pauses = []
    for _ in range(3):
        with pytest.raises(ForgeLimited):
            await adapter.get_issue(repository, 1)
        with pytest.raises(ForgeLimited) as told:
            await adapter.get_issue(repository, 1)
        pauses.append(round(_pause(told).total_seconds() / 60))
        await _pass_time(sessions, timedelta(hours=1))
    assert pauses == [1, 2, 4]


async def test_limits__writes_are_serial_and_apart_over_servers(
    reach, scripted, make_forges, table, caller
):
    interval = timedelta(milliseconds=300)
    _, adapter, repository = await reach(write_interval=interval)
    other = make_forges(scripted.url, write_interval=interval)
    adapter_there = await other.adapter((await other.get(caller, "github")).id)
    running, most, begun = 0, 0, []

    def answer(_request):
        nonlocal running, most
        running, most = running + 1, max(most, running + 1)
        begun.append(time.monotonic())
        time.sleep(0.1)
        running -= 1
        return Reply(COMMENT, status=201)

    table["POST", "/repos/acme/widgets/issues/1/comments"] = answer
    await asyncio.gather(
        *(each.comment(repository, 1, "b") for each in (adapter, adapter_there) for _ in range(2))
    )
    assert (len(begun), most) == (4, 1)
    apart = [later - earlier for earlier, later in itertools.pairwise(begun)]
    assert min(apart) > 0.15  # without the interval it is the 0.1 s of the answer


@pytest.mark.parametrize(
    ("count", "most", "within"),
    [("writes_minute", 80, timedelta(minutes=1)), ("writes_hour", 500, timedelta(hours=1))],
)
async def test_limits__writes_are_limited_per_minute_and_hour(
    reach, scripted, sessions, count, most, within
):
    _, adapter, repository = await reach()
    await adapter.comment(repository, 1, "b")
    async with sessions.begin() as session:
        await session.execute(
            update(ForgeBudget).where(ForgeBudget.resource == "writes").values({count: most - 1})
        )
    await adapter.comment(repository, 1, "b")
    asked = len(scripted.sent)
    with pytest.raises(ForgeLimited, match=f"{most} writes") as told:
        await adapter.comment(repository, 1, "b")
    assert timedelta() < _pause(told) <= within
    assert len(scripted.sent) == asked
    await adapter.get_issue(repository, 1)
    await _pass_time(sessions, within)
    await adapter.comment(repository, 1, "b")


@pytest.mark.parametrize("status", [500, 502, 503])
async def test_requests__a_failed_write_is_not_repeated(reach, scripted, table, status):
    _, adapter, repository = await reach()
    table["POST", "/repos/acme/widgets/issues/1/comments"] = Reply(status=status, body=b"<html>")
    before = len(scripted.sent)
    with pytest.raises(ForgeUnavailable, match=f"HTTP {status}") as told:
        await adapter.comment(repository, 1, "b")
    assert told.value.is_repeatable
    assert len(scripted.sent) == before + 1


async def test_requests__a_forge_that_does_not_answer_is_unavailable(make_forges, caller):
    nobody = "http://127.0.0.1:1"
    forges = make_forges(nobody)
    definition = ForgeDefinition(
        kind=ForgeKind.FORGEJO,
        auth=ForgeAuth.TOKEN,
        api_url=nobody,
        git_url=nobody,
        secret=TOKEN,
    )
    row, _ = await forges.put(caller, "gone", definition)
    with pytest.raises(ForgeUnavailable, match="cannot connect to the forge") as told:
        await (await forges.adapter(row.id)).find_repository("acme/widgets")
    assert told.value.is_repeatable


async def test_requests__a_renamed_repository_is_followed_at_the_same_forge(reach, scripted, table):
    _, adapter, _ = await reach()
    table["GET", "/repos/acme/old"] = Reply(
        status=301, headers={"Location": f"{scripted.url}/repositories/1"}
    )
    table["GET", "/repositories/1"] = REPOSITORY
    assert (await adapter.find_repository("acme/old")).full_name == "acme/widgets"
    assert scripted.sent[-1].headers["Authorization"] == f"Bearer {TOKEN}"


async def test_requests__the_credential_is_not_sent_to_another_host(reach, table, inbox):
    _, adapter, _ = await reach()
    table["GET", "/repos/acme/old"] = Reply(
        status=302, headers={"Location": f"{inbox.url}/repos/acme/old"}
    )
    with pytest.raises(ForgeUnavailable, match="unsafe address"):
        await adapter.find_repository("acme/old")
    assert inbox.sent == []


async def test_requests__a_log_at_another_host_is_read_without_the_credential(
    reach, table, elsewhere
):
    _, adapter, repository = await reach()
    elsewhere.script = lambda _: Reply(body=b"line\n" * 1000 + b"the end")
    log = Reply(status=302, headers={"Location": f"{elsewhere.url}/logs/7?sig=x"})
    table["GET", "/repos/acme/widgets/actions/jobs/7/logs"] = log
    check = CheckFacts(external_id="7", name="unit", origin="job", is_done=True)
    assert await adapter.read_check_log(repository, check, max_bytes=7) == b"the end"
    assert [each.path for each in elsewhere.sent] == ["/logs/7"]
    assert TOKEN not in str(elsewhere.sent[0].headers)


async def test_requests__a_write_is_not_redirected(reach, scripted, table):
    _, adapter, repository = await reach()
    table["POST", "/repos/acme/widgets/issues/1/comments"] = Reply(
        status=307, headers={"Location": f"{scripted.url}/elsewhere"}
    )
    with pytest.raises(ForgeUnavailable):
        await adapter.comment(repository, 1, "b")
    assert scripted.sent[-1].path == "/repos/acme/widgets/issues/1/comments"


async def test_requests__pages_are_followed_at_the_forge_only(reach, scripted, table, inbox):
    _, adapter, repository = await reach()
    comments = "/repos/acme/widgets/issues/1/comments"

    def page(request):
        number = int(request.query.get("page", ["1"])[0])
        host = scripted.url if number < 2 else inbox.url
        following = {"Link": f'<{host}{comments}?page={number + 1}>; rel="next"'}
        return Reply([COMMENT | {"id": number}], headers=following)

    table["GET", comments] = page
    found = await adapter.list_comments(repository, 1)
    assert [each.id for each in found] == ["1", "2"]
    assert inbox.sent == []


async def test_requests__an_answer_that_is_too_large_is_refused(reach, table):
    _, adapter, repository = await reach()
    large = b'{"title": "' + b"x" * (17 * 2**20) + b'"}'
    table["GET", "/repos/acme/widgets/issues/1"] = Reply(body=large)
    with pytest.raises(ForgeUnavailable, match="too large"):
        await adapter.get_issue(repository, 1)


async def test_requests__a_host_that_the_operator_removed_is_not_reached_any_more(
    reach, make_forges, caller
):
    forges, _, _ = await reach()
    row = await forges.get(caller, "github")
    with pytest.raises(ForgeHostNotAllowed):
        await make_forges("github.com").adapter(row.id)


async def test_requests__the_token_is_in_no_error_log_or_repr(reach, table, caplog):
    caplog.set_level(logging.DEBUG)
    forges, adapter, repository = await reach()
    texts = [repr(adapter), repr(adapter.__dict__), repr(forges.__dict__)]
    for reply in (
        Reply({"message": f"Bad credentials {TOKEN}"}, status=401),
        Reply({"message": TOKEN, "errors": [{"message": TOKEN}]}, status=422),
        Reply(body=b"{", status=200),
        Reply(status=503),
    ):
        table["GET", "/repos/acme/widgets/issues/1"] = reply
        with pytest.raises(Exception, match="Forge") as told:
            await adapter.get_issue(repository, 1)
        texts += [str(told.value), repr(told.value), repr(told.value.__dict__)]
    assert TOKEN not in caplog.text
    assert TOKEN not in "".join(texts)
