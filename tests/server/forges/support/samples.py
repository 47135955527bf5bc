"""Values that the tests of several forges share."""

from sandbox_server.domain.tasks.forges import PullDraft

AT = "2026-01-01T00:00:00Z"
DRAFT = PullDraft(
    title="fix: count",
    body="Because.\n\nCloses #1",
    head_ref="task-1",
    base_ref="main",
    draft=True,
    labels=["bug"],
)
