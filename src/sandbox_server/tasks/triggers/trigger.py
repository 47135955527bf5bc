import hashlib
from dataclasses import dataclass
from datetime import datetime

from sandbox_server.db.models import Forge, Repository, WebhookDelivery
from sandbox_server.domain.tasks.forges import RepositoryFacts
from sandbox_server.domain.tasks.repositories import RepositorySettings
from sandbox_server.forges.adapter import ForgeAdapter
from sandbox_server.repositories.facts import facts_of
from sandbox_server.tasks.following.remarks import Listeners
from sandbox_server.tasks.outbox_repository import WriteOwner


@dataclass(frozen=True)
class Trigger:
    """A delivery with what it is about."""

    delivery: WebhookDelivery
    repository: Repository
    forge: Forge
    adapter: ForgeAdapter
    now: datetime

    @property
    def facts(self) -> RepositoryFacts:
        return facts_of(self.repository)

    @property
    def settings(self) -> RepositorySettings:
        return RepositorySettings.of(self.repository.settings)

    @property
    def actor(self) -> str:
        return self.delivery.actor or ""

    @property
    def number(self) -> str | None:
        """The number of the issue or pull request, where the delivery names one."""
        subject = self.delivery.subject
        return subject if subject is not None and subject.isdecimal() else None

    @property
    def listeners(self) -> Listeners:
        users = self.settings.triggers.users
        return Listeners(self.adapter, self.facts, self.forge, users=users)

    @property
    def owner(self) -> WriteOwner:
        """Say what writes without a task are done for."""
        return WriteOwner(forge_id=self.forge.id, repository_id=self.repository.id)

    @property
    def ref(self) -> str:
        """Name what was delivered by its contents, since the id of a delivery is not signed."""
        digest = hashlib.sha256(self.delivery.digest).hexdigest()[:32]
        return f"delivery/{digest}"


@dataclass(frozen=True)
class Result:
    """The outcome of a delivery, or the time of the next try if it is not decided yet."""

    outcome: str
    look_at: datetime | None = None
