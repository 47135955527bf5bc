"""Base classes, types and limits shared by all models of the API."""

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


Capability = Annotated[str, Field(pattern="^[a-z][a-z0-9-]{0,31}$")]


class RequestModel(BaseModel):
    """Base of request bodies; unknown fields are rejected."""

    model_config = ConfigDict(extra="forbid")


class ResponseModel(BaseModel):
    """Base of responses; unknown fields of newer servers are ignored."""

    model_config = ConfigDict(frozen=True)


class Page(ResponseModel, Generic[Item]):
    """A page of a list. Pass `next_cursor` as `cursor` to get the next page; null on the last page."""

    items: list[Item]
    next_cursor: str | None


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:  # JSON can contain unpaired surrogates, which cannot be stored
        raise ValueError("Unpaired surrogates are not allowed.") from None
    return text


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("NUL characters are not allowed.")
    return text


def _few_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    if len(labels) > _MOST_LABELS:
        raise ValueError(f"At most {_MOST_LABELS} entries are allowed.")
    return labels


def _small(envs: Mapping[str, str]) -> Mapping[str, str]:
    if len(envs) > _MOST_ENVS:
        raise ValueError(f"At most {_MOST_ENVS} variables are allowed.")
    if (
        sum(len(name.encode()) + len(value.encode()) for name, value in envs.items())
        > _LARGEST_ENVS
    ):
        raise ValueError(f"All variables together may have at most {_LARGEST_ENVS // 1024} KiB.")
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
    Field(description=f"Up to {_MOST_LABELS} labels, which lists can be filtered by."),
]
EnvName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=_LONGEST_KEY)]
Envs = Annotated[
    dict[
        EnvName,
        Annotated[Storable, Field(max_length=_LONGEST_VALUE)],
    ],
    AfterValidator(_small),
    Field(description="Environment variables. Stored encrypted and never returned."),
]
Seconds = Annotated[float, Field(ge=1, le=YEAR.total_seconds(), allow_inf_nan=False, strict=True)]
Port = Annotated[int, Field(ge=1, le=65535)]
