import hashlib
import json
from dataclasses import dataclass
from typing import Any

import pytest
from sqlalchemy import select

from sandbox_server.db.models import Job, Task, TaskMessage, WebhookDelivery
from sandbox_server.domain.ids import new_id
from sandbox_server.domain.jobs import LeasedJob
from sandbox_server.forges.deliveries import Deliveries
from sandbox_server.jobs.kinds import WEBHOOK_DELIVERY
from sandbox_server.repositories.service import Repositories, RepositoryChanges
from sandbox_server.tasks.service import Tasks
from sandbox_server.tasks.triggers.worker import DeliveryWorker
from tests.server.support.in_process_server import caller_of
from tests.server.support.memory_forge import MemoryForge, MemoryForges, add_forge, add_tenant

TRIGGERS = {"labels": ["agent"], "mention": "@agent", "ci_fix": True}


@dataclass
class Triggered:
    """A repository with triggers, and a server that processes its deliveries."""

    sessions: Any
    forges: Any
    forge: MemoryForge
    forge_id: str
    repositories: Repositories
    repository_id: str
    caller: Any

    async def store(self, kind, action, payload, *, actor="alice", subject="7", **columns):
        """Store a delivery as the webhook's route does; gives its id."""
        body = json.dumps({**payload, "at": new_id()}).encode()
        plain = {
            "id": new_id(),
            "forge_id": self.forge_id,
            "delivery_id": new_id(),
            "digest": hashlib.sha256(body).digest(),
            "kind": kind,
            "action": action,
            "repository": "1001",
            "repository_name": "acme/widgets",
            "subject": subject,
            "actor": actor,
            "actor_is_bot": actor.endswith("[bot]"),
            "body": body,
        }
        row = WebhookDelivery(**{**plain, **columns})
        async with self.sessions.begin() as session:
            session.add(row)
        return row.id

    async def process(self, delivery_id):
        """Do what the delivery's job does once; gives when it is due again."""
        tasks = Tasks(self.sessions, self.repositories)
        deliveries = Deliveries(self.sessions, self.forges)
        worker = DeliveryWorker(self.sessions, deliveries, self.forges, self.repositories, tasks)
        return await worker.work(
            LeasedJob(id=1, kind=WEBHOOK_DELIVERY, subject=delivery_id, attempts=1, leased_by="a")
        )

    async def deliver(self, kind, action, payload, **columns):
        """Store and process a delivery; gives what came of it."""
        delivery_id = await self.store(kind, action, payload, **columns)
        await self.process(delivery_id)
        return (await self.delivery(delivery_id)).outcome

    async def delivery(self, delivery_id):
        async with self.sessions() as session:
            return await session.get_one(WebhookDelivery, delivery_id)

    async def label(self, name="agent", **columns):
        return await self.deliver("issue", "labeled", {"label": {"name": name}}, **columns)

    async def mention(self, body="@agent fix it", **columns):
        payload = {"issue": {"number": 7}, "comment": {"id": 1, "body": body, "html_url": "u"}}
        return await self.deliver("comment", "created", payload, **columns)

    async def tasks(self):
        async with self.sessions() as session:
            return (await session.scalars(select(Task).order_by(Task.id))).all()

    async def messages(self):
        async with self.sessions() as session:
            return (await session.scalars(select(TaskMessage).order_by(TaskMessage.id))).all()

    async def jobs(self, kind):
        async with self.sessions() as session:
            found = await session.scalars(select(Job.subject).where(Job.kind == kind))
            return found.all()

    async def set_triggers(self, **triggers):
        await self.repositories.update(
            self.caller, self.repository_id, RepositoryChanges(settings={"triggers": triggers})
        )


@pytest.fixture
async def triggered(sessions, vault):
    caller = caller_of(await add_tenant(sessions))
    forges, forge = MemoryForges(sessions), MemoryForge()
    forge_id = await add_forge(sessions, caller.tenant_id)
    forges.adapters[forge_id] = forge
    repositories = Repositories(sessions, vault, forges)
    wanted = RepositoryChanges(settings={"triggers": TRIGGERS})
    entry = await repositories.create(
        caller, forge="github", full_name="acme/widgets", wanted=wanted
    )
    return Triggered(sessions, forges, forge, forge_id, repositories, entry.row.id, caller)
