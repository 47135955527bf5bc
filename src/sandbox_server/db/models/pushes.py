from datetime import datetime

from sqlalchemy import BigInteger, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from sandbox_server.db.models.columns import Count, Id, Row, Switch, one_of
from sandbox_server.db.models.repositories import Repository
from sandbox_server.db.models.tenants import Tenant
from sandbox_server.domain.tasks.pushes import PushState


class GitPush(Row):
    """A push from a sandbox that the server accepted: forwarded, or kept until its forge answers."""

    __tablename__ = "git_pushes"
    __table_args__ = (
        one_of("state", *PushState),
        Index(None, "repository_id", "branch", "new_sha"),
        # One at a time: a newer one of the same branch replaces it.
        Index(
            "git_pushes_kept_idx",
            "repository_id",
            "branch",
            unique=True,
            postgresql_where=text("state = 'kept'"),
        ),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    tenant_id: Mapped[Id] = mapped_column(ForeignKey(Tenant.id))
    repository_id: Mapped[Id] = mapped_column(ForeignKey(Repository.id))
    sandbox_id: Mapped[Id]  # not foreign keys: the push outlives both
    task_id: Mapped[Id | None]
    branch: Mapped[str]
    old_sha: Mapped[str | None]  # where the forge has the branch; None: nowhere
    new_sha: Mapped[str]
    state: Mapped[str]
    is_accepted: Mapped[Switch]  # its client was told that it is pushed
    reason: Mapped[str | None]
    attempts: Mapped[Count]
    size: Mapped[int] = mapped_column(BigInteger)
    ended_at: Mapped[datetime | None]


class GitPushPart(Row):
    """A part of the bundle of a push that is kept, encrypted."""

    __tablename__ = "git_push_parts"
    __table_args__ = (UniqueConstraint("push_id", "part"),)

    id: Mapped[Id] = mapped_column(primary_key=True)
    push_id: Mapped[Id] = mapped_column(ForeignKey(GitPush.id, ondelete="CASCADE"))
    part: Mapped[int]
    content_sealed: Mapped[bytes]
