"""What all models of the API share: how they are read and written, and the bounds of what may be sent."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Generic, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

YEAR = timedelta(days=365)

_LONGEST_KEY = 128
_LONGEST_LABEL = 1024
_MOST_LABELS = 64
_LONGEST_DIRECTORY = 4096
_LONGEST_VALUE = 128 * 1024  # of one argument or variable, in Linux
_MOST_ENVS = 256
_LARGEST_ENVS = 512 * 1024

Item = TypeVar("Item")


class RequestModel(BaseModel):
    """What a caller sends; a field that does not exist is refused, since it was meant to do something."""

    model_config = ConfigDict(extra="forbid")


class ResponseModel(BaseModel):
    """What the server answers; a newer server may tell more."""

    model_config = ConfigDict(frozen=True)


class Page(ResponseModel, Generic[Item]):
    """A part of a list; `next_cursor` asks for the next one and is null in the last."""

    items: list[Item]
    next_cursor: str | None


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON can name halves of characters, which nothing can store
        raise ValueError("It has half of a character.") from None
    return text


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("A NUL character cannot be stored.")
    return text


def _few_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    if len(labels) > _MOST_LABELS:
        raise ValueError(f"There may be {_MOST_LABELS} entries at the most.")
    return labels


def _small(envs: Mapping[str, str]) -> Mapping[str, str]:
    if len(envs) > _MOST_ENVS:
        raise ValueError(f"There may be {_MOST_ENVS} variables at the most.")
    if (
        sum(len(name.encode()) + len(value.encode()) for name, value in envs.items())
        > _LARGEST_ENVS
    ):
        raise ValueError(f"All together may have {_LARGEST_ENVS // 1024} KiB.")
    return envs


Text = Annotated[str, AfterValidator(_encodable)]
Storable = Annotated[Text, AfterValidator(_without_nul)]
Name = Annotated[Storable, Field(min_length=1, max_length=200)]
Cwd = Annotated[
    Storable | None,
    Field(
        min_length=1,
        max_length=_LONGEST_DIRECTORY,
        description=(
            "Working directory: absolute, relative to the default, or `~/…` for the home. "
            "Default: the template's `WORKDIR`, else the user's home."
        ),
    ),
]
Labels = Annotated[
    dict[
        Annotated[Storable, Field(min_length=1, max_length=_LONGEST_KEY)],
        Annotated[Storable, Field(max_length=_LONGEST_LABEL)],
    ],
    AfterValidator(_few_labels),
    Field(description=f"Up to {_MOST_LABELS} names with texts of your own, to find it by."),
]
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=_LONGEST_KEY)]
Envs = Annotated[
    dict[
        EnvName,
        Annotated[Storable, Field(max_length=_LONGEST_VALUE)],
    ],
    AfterValidator(_small),
    Field(description="Environment variables. They are kept encrypted and never returned."),
]
Seconds = Annotated[float, Field(ge=1, le=YEAR.total_seconds(), allow_inf_nan=False, strict=True)]
Port = Annotated[int, Field(ge=1, le=65535)]
