from sandbox_server.tasks.stages.work import Blocked, TaskWork, WaitKind


def require_budget(work: TaskWork) -> None:
    """Raise `Blocked` if a task has used up what it may use; a retry grants it anew."""
    task = work.task
    if is_spent(work):
        raise spent_budget(work)
    if task.runs >= task.max_runs:
        raise _exceeded(
            f"The agent has run {task.runs} times; at most {task.max_runs} runs are allowed.",
            limit="runs",
        )
    require_time(work)


def is_spent(work: TaskWork) -> bool:
    """Whether the runs of a task, and of all its attempts, have cost what they may cost."""
    return work.task.budget_usd is not None and work.task.spent_usd >= work.task.budget_usd


def spent_budget(work: TaskWork) -> Blocked:
    """Describe that the runs have cost what they may cost."""
    task = work.task
    return _exceeded(
        f"The runs have cost {task.spent_usd:.2f} USD; the budget is {task.budget_usd:g} USD.",
        limit="usd",
    )


def require_time(work: TaskWork) -> None:
    """Raise `Blocked` after the deadline."""
    deadline = work.task.deadline_at
    if deadline is not None and work.now >= deadline:
        raise _exceeded(f"The deadline {deadline:%Y-%m-%d %H:%M} UTC has passed.", limit="deadline")


def _exceeded(text: str, *, limit: str) -> Blocked:
    return Blocked(
        WaitKind.BUDGET,
        f"{text} The work is kept. Retry to go on with a new budget, or cancel the task.",
        actions=("retry", "cancel"),
        limit=limit,
    )
