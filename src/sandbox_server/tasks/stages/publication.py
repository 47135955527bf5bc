"""Checks before publishing, and their refusals."""

from sandbox_server.db.models import Task
from sandbox_server.domain.errors import RemoteRefused
from sandbox_server.domain.tasks.forges import GitCredential
from sandbox_server.git.bare import BareRepository
from sandbox_server.git.lfs.server import ObjectRefused
from sandbox_server.git.scanning import Findings, list_large_files
from sandbox_server.tasks.large_files.service import TaskLargeFiles
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


async def publish_large_files(
    large_files: TaskLargeFiles,
    task: Task,
    repository: BareRepository,
    credential: GitCredential,
    head: str,
) -> None:
    """Send the contents of Git LFS that the commits point to, without which a forge takes none of them."""
    base = task.published_sha or task.base_sha
    assert base is not None
    pointers = await list_large_files(repository, head, base=base)
    try:
        missing = await large_files.publish(task, credential, [*pointers])
    except (ObjectRefused, RemoteRefused) as error:
        raise Blocked(
            WaitKind.FORGE,
            f"Not published, and the work is kept. The forge does not take its large files (Git LFS): {error}",
        ) from None
    if missing:
        raise Blocked(
            WaitKind.PUBLICATION,
            "Not published, and the work is kept. Neither a save nor the forge has the content of these large "
            f"files (Git LFS): {_list([pointers[each] for each in missing])}. Tell the agent to add and commit "
            "them again, or push them to the forge (`git lfs push`) and retry.",
            head=head,
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
