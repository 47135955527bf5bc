"""What is told to a person of what was carried over."""

from collections.abc import Iterator, Sequence

from sandbox_client.models import SandboxRead, SandboxState
from sandbox_client.workspace.sync import SyncReport, paths_of

_MOST_NAMED = 10


def report_lines(report: SyncReport) -> Iterator[str]:
    """Say what was done and what was not, the usual first."""
    yield from some("to the sandbox", paths_of(report.pushed))
    yield from some("from the sandbox", paths_of(report.pulled))
    for ours, copy in report.conflicts.items():
        yield f"changed on both sides: {ours} is yours, {copy} is the sandbox's"
    for path in report.restored:
        yield f"deleted on one side and changed on the other, so kept: {path}"
    for path, reason in report.refused.items():
        yield f"not carried over: {path}: {reason}"


def pending_lines(to_push: Sequence[str], to_pull: Sequence[str]) -> Iterator[str]:
    yield from some("changed here only", to_push)
    yield from some("changed in the sandbox only", to_pull)


def some(what: str, names: Sequence[str]) -> Iterator[str]:
    """List the first few names."""
    if not names:
        return
    named = ", ".join(names[:_MOST_NAMED])
    others = len(names) - _MOST_NAMED
    more = f" and {others} more" if others > 0 else ""
    yield f"{what}: {named}{more}"


def line_of(record: SandboxRead) -> str:
    """Say why a sandbox does not run yet."""
    if record.state is SandboxState.QUEUED and record.queue is not None:
        return f"waiting: number {record.queue.position} in the queue, {record.queue.reason}"
    return f"the sandbox is {record.state}"
