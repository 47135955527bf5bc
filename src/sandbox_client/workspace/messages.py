"""Messages about a synchronization."""

from collections.abc import Iterator, Sequence

from sandbox_client.models import SandboxRead, SandboxState
from sandbox_client.workspace.sync import SyncReport, paths_of

_MOST_NAMED = 10


def report_lines(report: SyncReport) -> Iterator[str]:
    """Describe what was synchronized and what was not."""
    yield from some("copied to the sandbox", paths_of(report.pushed))
    yield from some("copied from the sandbox", paths_of(report.pulled))
    for ours, copy in report.conflicts.items():
        yield f"conflict: {ours} is your version, {copy} is the sandbox's"
    for path in report.restored:
        yield f"kept, deleted on one side but changed on the other: {path}"
    for path, reason in report.refused.items():
        yield f"not copied: {path}: {reason}"


def pending_lines(to_push: Sequence[str], to_pull: Sequence[str]) -> Iterator[str]:
    yield from some("changed locally only", to_push)
    yield from some("changed in the sandbox only", to_pull)


def some(what: str, names: Sequence[str]) -> Iterator[str]:
    """List the first names."""
    if not names:
        return
    named = ", ".join(names[:_MOST_NAMED])
    others = len(names) - _MOST_NAMED
    more = f" and {others} more" if others > 0 else ""
    yield f"{what}: {named}{more}"


def line_of(record: SandboxRead) -> str:
    """Say what a sandbox that is not running yet waits for."""
    if record.state is SandboxState.QUEUED and record.queue is not None:
        return f"queued at position {record.queue.position}: {record.queue.reason}"
    return f"the sandbox is {record.state}"
