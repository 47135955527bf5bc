from sqlalchemy import BigInteger, ForeignKey, ForeignKeyConstraint, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from sandbox_server.db.models.columns import Count, Id, Row, one_of
from sandbox_server.db.models.tasks import Task
from sandbox_server.domain.tasks.stages import SaveKind


class TaskSave(Row):
    """The work of a task at an instant, kept as a git bundle."""

    __tablename__ = "task_saves"
    __table_args__ = (one_of("kind", *SaveKind),)

    task_id: Mapped[Id] = mapped_column(ForeignKey(Task.id, ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    run_number: Mapped[int | None]
    attempt: Mapped[Count]  # 0: of the task itself
    kind: Mapped[str]
    cause: Mapped[str]
    sha: Mapped[str]
    head_sha: Mapped[str | None]
    branch: Mapped[str | None]
    tree: Mapped[str]
    mark: Mapped[str]  # equal for two saves of the same files, HEAD and branches
    base_sha: Mapped[str | None]
    files: Mapped[Count]
    size: Mapped[int] = mapped_column(BigInteger)
    left_out: Mapped[list[str]] = mapped_column(server_default=text("'{}'"))
    large_files: Mapped[list[str]] = mapped_column(server_default=text("'{}'"))  # of Git LFS, kept


class TaskSavePart(Row):
    """A part of a save's bundle, encrypted."""

    __tablename__ = "task_save_parts"
    __table_args__ = (
        ForeignKeyConstraint(
            ["task_id", "number"],
            ["task_saves.task_id", "task_saves.number"],
            ondelete="CASCADE",
            name="task_save_parts_save_fkey",
        ),
        UniqueConstraint("task_id", "number", "part"),
    )

    id: Mapped[Id] = mapped_column(primary_key=True)
    task_id: Mapped[Id]
    number: Mapped[int]
    part: Mapped[int]
    content_sealed: Mapped[bytes]


class TaskLargeFilePart(Row):
    """A part of a content of Git LFS that saves of a task point to, encrypted."""

    __tablename__ = "task_large_file_parts"
    __table_args__ = (UniqueConstraint("task_id", "oid", "part"),)

    id: Mapped[Id] = mapped_column(primary_key=True)
    task_id: Mapped[Id] = mapped_column(ForeignKey(Task.id, ondelete="CASCADE"))
    oid: Mapped[str]
    part: Mapped[int]
    content_sealed: Mapped[bytes]
