"""Finds work in a sandbox that deleting it would lose."""

from collections.abc import Iterator
from dataclasses import dataclass

from sandbox_client.workspace.messages import some
from sandbox_client.workspace.plan import Plan
from sandbox_client.workspace.workspace import Workspace


@dataclass(frozen=True)
class Unsaved:
    files: list[str]
    branches: list[str]  # that `pull` fetches
    other_commits: list[str]  # that nothing fetches
    unreadable: list[str]  # in the sandbox

    def __bool__(self) -> bool:
        return any((self.files, self.branches, self.other_commits, self.unreadable))

    @property
    def can_be_pulled(self) -> bool:
        return not self.other_commits and not self.unreadable

    def lines(self) -> Iterator[str]:
        yield from some("changed in the sandbox and not pulled", self.files)
        yield from some("commits not fetched yet, on", self.branches)
        yield from some("commits that `pull` cannot fetch, on", self.other_commits)
        yield from some("not readable in the sandbox, so `pull` skips them", self.unreadable)


async def find_unsaved(workspace: Workspace) -> Unsaved:
    """Compare both sides; resumes a paused sandbox."""
    plan = await workspace.shared.compare()
    branches, others = await workspace.history.find_unfetched()
    return Unsaved(_files(plan), branches, others, await workspace.shared.find_unreadable())


def _files(plan: Plan) -> list[str]:
    changed = (change.source or change.path for change in plan.pull)
    return sorted({*changed, *plan.type_conflicts})
