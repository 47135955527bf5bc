from enum import StrEnum
from typing import Generic, TypeVar

from sqlalchemy import Dialect, Text
from sqlalchemy.types import TypeDecorator

Choices = TypeVar("Choices", bound=StrEnum)


class Choice(TypeDecorator[Choices], Generic[Choices]):
    """A text in the database, in Python a member of an enumeration."""

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
