"""Tasks: what is to come of a repository, from an issue or a text to a pull request.

Stages, which are stored:

    queued -> preparing -> working -> checking -> publishing -> in-review -> merged | closed
                              ^          | failed      |           | CI, review, conflict
                              +-- fixing <-------------+-----------+
    any open stage -> waiting-for-user -> back to the stage before
    any open stage -> failed | cancelled | timed-out

States are derived from the stage, never stored; they are those of GitHub's agent tasks.
"""

from enum import StrEnum


class Stage(StrEnum):
    QUEUED = "queued"
    PREPARING = "preparing"
    WORKING = "working"
    CHECKING = "checking"
    FIXING = "fixing"
    PUBLISHING = "publishing"
    IN_REVIEW = "in-review"
    WAITING_FOR_USER = "waiting-for-user"
    MERGED = "merged"
    CLOSED = "closed"
    DONE = "done"
    """Ended without a pull request that is followed: none was requested, or the forge has no API."""
    FAILED = "failed"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed-out"


class TaskState(StrEnum):
    QUEUED = "queued"
    IN_PROGRESS = "in_progress"
    WAITING_FOR_USER = "waiting_for_user"
    IDLE = "idle"
    """In review: nothing to do until somebody reviews, merges or closes the pull request."""
    COMPLETED = "completed"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"


class TaskTarget(StrEnum):
    FINISHED = "finished"
    CANCELLED = "cancelled"


class TaskSource(StrEnum):
    TEXT = "text"
    ISSUE = "issue"
    MENTION = "mention"
    CI_FIX = "ci-fix"


class PullRequestWish(StrEnum):
    DRAFT = "draft"
    READY = "ready"
    NONE = "none"
    COMMENT = "comment"
    """Nothing is pushed: the agent's report becomes a comment on the base branch's pull request, or on its commit."""


class MessageOrigin(StrEnum):
    API = "api"
    COMMENT = "comment"
    REVIEW = "review"
    CI = "ci"
    CONFLICT = "conflict"
    SERVER = "server"


class RunKind(StrEnum):
    AGENT = "agent"
    SETUP = "setup"
    CHECKS = "checks"


class RunOutcome(StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INERT = "inert"
    """The checks could not be started: their command does not exist."""
    INFRASTRUCTURE = "infrastructure"
    """The checks were killed, or the disk was full: this says nothing about the work."""
    TIMED_OUT = "timed-out"
    INTERRUPTED = "interrupted"
    LOST = "lost"


class SaveKind(StrEnum):
    WIP = "wip"
    """A commit of the server above HEAD, with what was not committed."""
    HEAD = "head"
    """The tree was clean: the save is HEAD itself."""


class AttemptState(StrEnum):
    """States of one of several attempts at a task."""

    QUEUED = "queued"
    WORKING = "working"
    CHECKING = "checking"
    FINISHED = "finished"
    """Its work is saved; it waits for the others."""
    CHOSEN = "chosen"
    NOT_CHOSEN = "not-chosen"
    CANCELLED = "cancelled"


class ChoiceBy(StrEnum):
    """Whether the server or an operator chooses among the attempts at a task."""

    AUTOMATIC = "automatic"
    OPERATOR = "operator"


TASK_ENDED = frozenset(
    {Stage.MERGED, Stage.CLOSED, Stage.DONE, Stage.FAILED, Stage.CANCELLED, Stage.TIMED_OUT}
)

ACTIVE = frozenset({Stage.PREPARING, Stage.WORKING, Stage.CHECKING, Stage.FIXING, Stage.PUBLISHING})
"""Stages in which a task occupies a place of its repository; a review may take days, and does not."""

_STATES = {
    Stage.QUEUED: TaskState.QUEUED,
    Stage.WAITING_FOR_USER: TaskState.WAITING_FOR_USER,
    Stage.IN_REVIEW: TaskState.IDLE,
    Stage.MERGED: TaskState.COMPLETED,
    Stage.CLOSED: TaskState.COMPLETED,
    Stage.DONE: TaskState.COMPLETED,
    Stage.FAILED: TaskState.FAILED,
    Stage.CANCELLED: TaskState.CANCELLED,
    Stage.TIMED_OUT: TaskState.TIMED_OUT,
}


def state_of_task(stage: Stage) -> TaskState:
    """Derive the state that is reported from the stored stage."""
    return _STATES.get(stage, TaskState.IN_PROGRESS)
