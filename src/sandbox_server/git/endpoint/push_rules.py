"""Rules for pushes, applied to commands and objects of every client."""

from collections.abc import Sequence

from sandbox_server.git.bare import BareRepository
from sandbox_server.git.endpoint.access import RepositoryGrant
from sandbox_server.git.endpoint.push_report import RefResult
from sandbox_server.git.endpoint.push_request import PushRequest, RefCommand
from sandbox_server.git.scanning import Findings

_NAMED = 3


def refuse_commands(push: PushRequest, grant: RepositoryGrant) -> Sequence[RefResult]:
    """Return the answers to a push with a command that is not allowed; it refuses all of them."""
    reasons = {command.ref: _reason(command, grant) for command in push.commands}
    if not any(reasons.values()):
        return ()
    return [
        RefResult(ref=ref, reason=reason or "refused with the others")
        for ref, reason in reasons.items()
    ]


def _reason(command: RefCommand, grant: RepositoryGrant) -> str | None:
    if command.ref != f"refs/heads/{grant.branch}":
        return f"only {grant.branch} may be pushed"
    if command.is_delete:
        return f"{grant.branch} may not be deleted"
    if len(command.new) != len("0" * 40):
        return "this repository has SHA-1 object ids"
    return None


async def refuse_content(
    repository: BareRepository, command: RefCommand, grant: RepositoryGrant, *, base: str
) -> str | None:
    """Return why the commits of a push are not forwarded; None if they are."""
    is_approved = grant.task is not None and command.new in grant.task.approved
    protected = () if is_approved else tuple(grant.settings.protected_paths)
    return _explain(await repository.scan(base, command.new, protected=protected))


def _explain(found: Findings) -> str | None:
    if found.secrets:
        first = found.secrets[0]
        return (
            f"{first.path}:{first.line} in {first.commit[:7]} looks like a {first.kind}; remove it from "
            f"the commits, not only from the files{_and_more(found.secrets)}"
        )
    if found.large_files:
        largest = found.large_files[0]
        return f"{largest.path} has {largest.size >> 20} MB; forges take at most 100 MB{_and_more(found.large_files)}"
    if found.protected_paths:
        named = ", ".join(found.protected_paths[:_NAMED])
        return f"changes of {named} need an approval; leave them out, or have the task approved"
    if not found.is_complete:
        return "the changes are too large to be checked; push fewer commits at a time"
    return None


def _and_more(found: Sequence[object]) -> str:
    return f" ({len(found) - 1} more)" if len(found) > 1 else ""
