"""Settings of a repository: how its tasks are prepared, checked and published."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum


class CommitStyle(StrEnum):
    CONVENTIONAL = "conventional"
    """Commits whose subject is not conventional are rewritten before they are published."""
    AS_IS = "as-is"


class CiFixMode(StrEnum):
    """The way to publish a fix for a branch that belongs to no task."""

    PULL_REQUEST = "pull-request"
    COMMENT = "comment"
    """Only the diagnosis is published, as a comment."""


@dataclass(frozen=True, kw_only=True)
class Triggers:
    """Conditions under which webhooks start tasks."""

    labels: Sequence[str] = ()
    """An issue that gets one of these labels."""
    mention: str | None = None
    """A comment on an issue or a pull request that contains this word, for example `@agent`."""
    users: Sequence[str] = ()
    """Logins that may start tasks besides users with write permission; bots only if listed."""
    ci_fix: bool = False
    """Failed checks of any branch, not only of tasks."""
    ci_fix_mode: str = CiFixMode.PULL_REQUEST


@dataclass(frozen=True, kw_only=True)
class RepositorySettings:
    """None leaves a value to the server's defaults."""

    template: str | None = None
    capabilities: Sequence[str] = ()
    """Capabilities that select the template, or that it must have."""
    setup: str | None = None
    setup_timeout: timedelta = timedelta(minutes=15)
    checks: str | None = None
    checks_timeout: timedelta = timedelta(minutes=30)
    agent: str = "claude"
    agent_command: str | None = None
    """A plain command instead of an agent; it reads the prompt from `$TASK_PROMPT_FILE`."""
    model: str | None = None
    run_timeout: timedelta = timedelta(hours=1)
    branch_prefix: str = "task-"
    draft: bool = True
    labels: Sequence[str] = ()
    reviewers: Sequence[str] = ()
    commit_style: CommitStyle = CommitStyle.CONVENTIONAL
    reads: Sequence[str] = ()
    """Other repositories of the forge that its sandboxes may read."""
    protected_paths: Sequence[str] = (".github/workflows/**",)
    """Changes of these paths are published after an approval only."""
    auto_fix: bool = True
    """Failed checks of a task's pull request start a fix run."""
    max_fixes: int = 3
    max_runs: int = 10
    max_open: int = 5
    budget_usd: float | None = None
    budget_usd_per_day: float | None = None
    deadline: timedelta = timedelta(hours=24)
    keep_branch: bool = False
    accept_offline: bool = False
    """Answer `ok` to a push that the server keeps while the forge is unreachable."""
    triggers: Triggers = field(default_factory=Triggers)

    @classmethod
    def of(cls, document: Mapping[str, object]) -> "RepositorySettings":
        """Read stored settings; durations are stored in seconds as `{name}_s`."""
        values: dict[str, object] = {}
        for name, value in document.items():
            if name == "triggers" and isinstance(value, Mapping):
                values[name] = Triggers(**value)
            elif name.endswith("_s") and isinstance(value, int | float):
                values[name.removesuffix("_s")] = timedelta(seconds=value)
            elif name in cls.__dataclass_fields__:
                values[name] = value
        return cls(**values)  # type: ignore[arg-type]
