"""All examples of GitHub's webhooks, as Octokit collected them, go through the route and the job."""

import hashlib
import hmac
import json

import pytest
from sqlalchemy import update

from sandbox_server.db.models import Forge, Repository
from sandbox_server.forges.deliveries import Deliveries
from sandbox_server.forges.hosts import AllowedHosts
from sandbox_server.forges.sealed import seal_webhook_secret
from sandbox_server.forges.service import Forges
from tests.server.forges.support.github_emulator import PROGRAMS

EXAMPLES = PROGRAMS / "@octokit" / "webhooks-examples" / "api.github.com"
SECRET = "a secret of the test"

pytestmark = pytest.mark.skipif(not EXAMPLES.exists(), reason="run scripts/test-programs")


@pytest.fixture
async def deliveries(sessions, vault, triggered):
    """Receive deliveries for the forge of the repository, which is known under any id."""
    sealed = seal_webhook_secret(vault, triggered.forge_id, SECRET)
    async with sessions.begin() as session:
        await session.execute(update(Forge).values(webhook_secret_sealed=sealed))
    forges = Forges(sessions, vault, AllowedHosts(()))
    yield Deliveries(sessions, forges)
    await forges.close()


async def receive(deliveries, triggered, number, event, document):
    body = json.dumps(document).encode()
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    headers = {
        "X-Hub-Signature-256": f"sha256={signature}",
        "X-GitHub-Event": event,
        "X-GitHub-Delivery": f"d-{number}",
    }
    receipt = await deliveries.receive(triggered.forge_id, headers, body)
    return receipt.id


async def own(sessions, document):
    """Have the repository of a payload be the one that is known."""
    found = document.get("repository")
    if isinstance(found, dict):
        names = {"external_id": str(found["id"]), "full_name": found["full_name"]}
        async with sessions.begin() as session:
            await session.execute(update(Repository).values(names))


async def test_every_example_is_processed_and_starts_only_what_is_permitted(
    deliveries, triggered, sessions
):
    index = json.loads((EXAMPLES / "index.json").read_text())
    examples = [(event["name"], each) for event in index for each in event["examples"]]
    outcomes = {}
    for number, (event, document) in enumerate(examples):
        await own(sessions, document)
        delivery_id = await receive(deliveries, triggered, number, event, document)
        await triggered.process(delivery_id)
        outcomes[number] = (await triggered.delivery(delivery_id)).outcome
    assert len(outcomes) == 329
    assert all(outcomes.values())
    assert await triggered.tasks() == []


async def test_the_example_of_a_label_starts_a_task_of_a_permitted_user(
    deliveries, triggered, sessions
):
    index = json.loads((EXAMPLES / "index.json").read_text())
    [issues] = [event["examples"] for event in index if event["name"] == "issues"]
    document = next(each for each in issues if each["action"] == "labeled")
    await own(sessions, document)
    await triggered.set_triggers(labels=[document["label"]["name"]])
    triggered.forge.writers.add(document["sender"]["login"])
    await triggered.process(await receive(deliveries, triggered, 0, "issues", document))
    [task] = await triggered.tasks()
    assert task.source_ref == str(document["issue"]["number"])
