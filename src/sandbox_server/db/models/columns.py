from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated, Any, Generic, TypeVar

from sqlalchemy import (
    ARRAY,
    CheckConstraint,
    DateTime,
    Dialect,
    Interval,
    LargeBinary,
    MetaData,
    Text,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column
from sqlalchemy.types import TypeDecorator

from sandbox_server.domain.commands import CommandKind, CommandState
from sandbox_server.domain.computers.browsers import SessionState
from sandbox_server.domain.state import OnTimeout, State, Target

Choices = TypeVar("Choices", bound=StrEnum)


class Choice(TypeDecorator[Choices], Generic[Choices]):
    """An enumeration in Python, text in the database."""

    impl = Text
    cache_ok = True

    def __init__(self, choices: type[Choices]) -> None:
        super().__init__()
        self.choices = choices

    def process_bind_param(self, value: Choices | str | None, dialect: Dialect) -> str | None:
        del dialect
        return None if value is None else self.choices(value).value

    def process_result_value(self, value: str | None, dialect: Dialect) -> Choices | None:
        del dialect
        return None if value is None else self.choices(value)


# Collation C: ids sort by time only in byte order.
Id = Annotated[str, mapped_column(Text(collation="C"))]
# A JSON object with a default in the database.
Document = Annotated[dict[str, Any], mapped_column(JSONB, server_default=text("'{}'"))]
Switch = Annotated[bool, mapped_column(server_default=text("false"))]
Names = Annotated[list[str], mapped_column(ARRAY(Text), server_default=text("'{}'"))]
Count = Annotated[int, mapped_column(server_default=text("0"))]


def one_of(column: str, *values: str) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column} IN ({listed})", name=column)


class Row(DeclarativeBase):
    metadata = MetaData(
        naming_convention={
            "pk": "%(table_name)s_pkey",
            "uq": "%(table_name)s_%(column_0_N_name)s_key",
            "fk": "%(table_name)s_%(column_0_N_name)s_fkey",
            "ck": "%(table_name)s_%(constraint_name)s_check",
            "ix": "%(table_name)s_%(column_0_N_name)s_idx",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own spelling
        str: Text,
        bytes: LargeBinary,
        datetime: DateTime(timezone=True),
        timedelta: Interval,
        list[str]: ARRAY(Text),
        State: Choice(State),
        Target: Choice(Target),
        OnTimeout: Choice(OnTimeout),
        CommandKind: Choice(CommandKind),
        CommandState: Choice(CommandState),
        SessionState: Choice(SessionState),
    }

    created_at: Mapped[datetime] = mapped_column(
        server_default=func.clock_timestamp(), sort_order=1000
    )
