from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import cached_property
from typing import Any, Protocol

from sandbox_server.db.models import Repository, Task
from sandbox_server.domain.access import ServerCaller
from sandbox_server.domain.tasks.forges import RepositoryFacts
from sandbox_server.domain.tasks.repositories import RepositorySettings
from sandbox_server.domain.tasks.stages import RunOutcome, Stage
from sandbox_server.repositories.facts import facts_of
from sandbox_server.tasks.transitions import TaskMove

AGAIN = timedelta()
"""The next step is due at once."""


class WaitKind(StrEnum):
    """Why a task waits for a person."""

    QUESTION = "question"
    NOTHING_CHANGED = "nothing-changed"
    RUN_FAILED = "run-failed"
    CHECKS_FAILED = "checks-failed"
    PUBLICATION = "publication"
    """The server refuses to publish what the work contains."""
    BUDGET = "budget"
    FORGE = "forge"
    """The forge refuses, or a permission is missing."""
    PULL_REQUEST = "pull-request"
    SANDBOX = "sandbox"
    SAVE = "save"
    CHOICE = "choice"
    """The attempts have finished, and an operator chooses one."""
    ERROR = "error"


class Blocked(Exception):
    """The task cannot go on without a person, who is told why and what to do."""

    def __init__(
        self,
        kind: WaitKind,
        text: str,
        *,
        actions: tuple[str, ...] = ("message", "retry", "cancel"),
        **data: Any,
    ) -> None:
        super().__init__(text)
        self.text = text
        self.awaits = {"kind": kind, "text": text, "actions": list(actions), "data": data}

    def move(self, values: Mapping[str, Any] | None = None) -> TaskMove:
        """Describe the move to `waiting-for-user`."""
        return TaskMove(
            stage=Stage.WAITING_FOR_USER, reason=self.text, awaits=self.awaits, values=values or {}
        )


class SandboxLost(Exception):
    """The sandbox of the task has ended; its work is in the saves."""


@dataclass(frozen=True)
class TaskWork:
    """A task as it was read at the beginning of a step."""

    task: Task
    repository: Repository
    now: datetime

    @cached_property
    def settings(self) -> RepositorySettings:
        return RepositorySettings.of(self.task.settings)

    @property
    def facts(self) -> RepositoryFacts:
        return facts_of(self.repository)

    @property
    def caller(self) -> ServerCaller:
        return ServerCaller.of(self.task.tenant_id, priority=self.task.priority)

    @property
    def branch(self) -> str:
        assert self.task.branch is not None
        return self.task.branch

    @property
    def working_stage(self) -> Stage:
        """The stage in which the agent runs: the first time, or again."""
        is_first = self.task.published_sha is None and not self.task.fixes_since_green
        return Stage.WORKING if is_first else Stage.FIXING

    @property
    def attempt_number(self) -> int:
        """The attempt that this is; 0: the task itself."""
        return 0

    @property
    def is_first_run(self) -> bool:
        """Whether the agent has not worked on this before its current run."""
        return self.task.runs <= 1

    @property
    def in_stage_for(self) -> timedelta:
        return self.now - self.task.stage_at

    @property
    def ending_for(self) -> timedelta:
        """How long ago it was decided that the task ends."""
        return self.now - (self.task.outcome_at or self.now)

    def ending(self, outcome: Stage, reason: str) -> TaskMove:
        """Describe that the task is to end, once its work is saved and its sandbox deleted."""
        return TaskMove(values={"outcome": outcome, "outcome_at": self.now}, reason=reason)


class Step(Protocol):
    """The work of one stage."""

    async def work(self, work: TaskWork) -> timedelta | None:
        """Do what is due; returns the delay until the next look, None: when the task is woken."""
        ...


GOOD_ENOUGH = frozenset(
    {RunOutcome.SUCCEEDED, RunOutcome.INERT, RunOutcome.INFRASTRUCTURE, RunOutcome.TIMED_OUT}
)
"""Outcomes of checks that do not keep work from being published: the last three say nothing about the work."""
