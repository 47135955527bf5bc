"""What the server refuses to publish, and why."""

from sandbox_server.git.scanning import Findings
from sandbox_server.tasks.stages.work import Blocked, WaitKind

_MOST_NAMED = 10


def hides_in_history(findings: Findings) -> bool:
    """Whether squashing the commits may remove what was found."""
    return bool(findings.secrets or findings.large_files)


def require_publishable(findings: Findings, head: str, *, is_approved: bool) -> None:
    """Raise `Blocked` with files and lines; an approval of this head lets everything pass but too large files."""
    if findings.large_files:
        named = [f"{file.path} ({file.size >> 20} MiB)" for file in findings.large_files]
        raise _refusal(
            f"These files are too large to be published: {_list(named)}. Tell the agent to remove them from "
            "its commits, or to use Git LFS.",
            head,
            may_approve=False,
        )
    if is_approved:
        return
    if findings.secrets:
        named = [f"{found.kind} in {found.path}:{found.line}" for found in findings.secrets]
        raise _refusal(
            f"The work looks as if it contained secrets: {_list(named)}. Tell the agent to remove them, or "
            "approve if they are none.",
            head,
        )
    if findings.protected_paths:
        raise _refusal(
            f"The work changes protected files: {_list([*findings.protected_paths])}. Approve the change, or tell "
            "the agent to undo it.",
            head,
        )
    if not findings.is_complete:
        raise _refusal(
            "The work is too large to be searched for secrets. Look at the diff, then approve it.",
            head,
        )


def _refusal(text: str, head: str, *, may_approve: bool = True) -> Blocked:
    actions = ("message", "approve", "cancel") if may_approve else ("message", "cancel")
    return Blocked(
        WaitKind.PUBLICATION,
        f"Not published, and the work is kept. {text}",
        actions=actions,
        head=head,
    )


def _list(named: list[str]) -> str:
    more = len(named) - _MOST_NAMED
    shown = ", ".join(named[:_MOST_NAMED])
    return shown if more <= 0 else f"{shown} and {more} more"
