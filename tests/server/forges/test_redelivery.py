"""Webhooks of an App that did not arrive: GitHub is asked to repeat them."""

from datetime import UTC, datetime, timedelta

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from sqlalchemy import select

from sandbox_server.db.models import Job
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.domain.tasks.forges import ForgeAuth, ForgeKind
from sandbox_server.forges.redelivery import Redelivery
from sandbox_server.forges.service import ForgeDefinition
from sandbox_server.jobs.kinds import WEBHOOK_REDELIVERY
from tests.server.forges.support.scripted_server import Reply

HOUR = timedelta(hours=1)


def attempt(number, guid, status, *, age=HOUR):
    at = datetime.now(UTC) - age
    return {
        "id": number,
        "guid": guid,
        "delivered_at": at.isoformat(),
        "status_code": status,
        "redelivery": False,
        "event": "push",
    }


@pytest.fixture(scope="module")
def private_key():
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    ).decode()


@pytest.fixture
async def redeliver(scripted, make_forges, caller, sessions, private_key):
    """Have the job of an App look at these attempts; gives the ids that were requested again."""
    forges = make_forges(scripted.url)

    async def redeliver(*attempts, auth=ForgeAuth.APP, status=200):
        is_app = auth is ForgeAuth.APP
        definition = ForgeDefinition(
            kind=ForgeKind.GITHUB,
            auth=auth,
            api_url=scripted.url,
            git_url=scripted.url,
            app_id="7" if is_app else None,
            secret=private_key if is_app else "github_pat_x",
        )
        row, _ = await forges.put(caller, "github", definition)
        table = {("GET", "/app/hook/deliveries"): Reply(list(attempts), status=status)}
        for each in attempts:
            path = f"/app/hook/deliveries/{each['id']}/attempts"
            table["POST", path] = Reply({}, status=202)
        scripted.routes(table)
        job = LeasedJob(id=1, kind=WEBHOOK_REDELIVERY, subject=row.id, attempts=1, leased_by="a")
        due = await Redelivery(sessions, forges).work(job)
        posted = [each.path.split("/")[4] for each in scripted.sent if each.method == "POST"]
        return due, posted

    return redeliver


async def test_what_did_not_arrive_is_requested_again_by_its_last_attempt(redeliver):
    due, posted = await redeliver(
        attempt(1, "lost", 502, age=3 * HOUR),
        attempt(2, "lost", 0, age=2 * HOUR),
        attempt(3, "fine", 202),
    )
    assert posted == ["2"]
    assert due is not None


async def test_what_arrived_at_a_later_attempt_is_left_alone(redeliver):
    _, posted = await redeliver(attempt(1, "a", 500, age=2 * HOUR), attempt(2, "a", 200))
    assert posted == []


async def test_what_fails_again_and_again_is_given_up(redeliver):
    _, posted = await redeliver(*(attempt(number, "a", 413) for number in range(5)))
    assert posted == []


async def test_what_is_older_than_a_day_is_left_alone(redeliver):
    _, posted = await redeliver(attempt(1, "a", 500, age=30 * HOUR))
    assert posted == []


async def test_a_failing_forge_is_asked_again_in_an_hour(redeliver):
    due, _ = await redeliver(attempt(1, "a", 500), status=500)
    assert due is not None


async def test_only_apps_have_the_job(redeliver, sessions):
    async with sessions() as session:
        assert (await session.scalars(select(Job))).all() == []
    assert (await redeliver(auth=ForgeAuth.TOKEN)) == (None, [])
    async with sessions() as session:
        assert (await session.scalars(select(Job))).all() == []


async def test_an_app_gets_the_job_when_it_is_stored(redeliver, sessions):
    await redeliver()
    async with sessions() as session:
        [job] = await session.scalars(select(Job))
    assert job.kind == WEBHOOK_REDELIVERY
