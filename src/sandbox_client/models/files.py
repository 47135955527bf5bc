from datetime import datetime
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, ConfigDict, Field

from sandbox_client.models.wire import RequestModel, ResponseModel, Storable

_LONGEST_PATH = 4095  # in bytes, in Linux
PATH_FORMS = "absolute, relative to the working directory (the template's `WORKDIR`, else the user's home), or `~/…` for the home"


def _fits(path: str) -> str:
    if len(path.encode()) > _LONGEST_PATH:
        raise ValueError(f"A path may have at most {_LONGEST_PATH} bytes.")
    return path


FilePath = Annotated[
    Storable,
    Field(
        min_length=1,
        max_length=_LONGEST_PATH,
        description=f"Path in the sandbox: {PATH_FORMS}.",
    ),
    AfterValidator(_fits),
]
DirectoryPath = Annotated[
    Storable,
    Field(
        max_length=_LONGEST_PATH,
        description=f"Directory in the sandbox: {PATH_FORMS}. Default: the working directory.",
    ),
    AfterValidator(_fits),
]
FileUser = Annotated[
    str,
    Field(
        pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$",
        description="User in the sandbox. Default: the template's.",
    ),
]


class FileType(StrEnum):
    FILE = "file"
    DIRECTORY = "directory"
    OTHER = "other"


class FileRead(ResponseModel):
    """A file or directory. A symlink has the type of its target, and a `symlink_target`."""

    path: str
    name: str
    type: FileType
    size: int
    mode: Annotated[str, Field(description="Permissions in octal, for example `0644`.")]
    owner: str
    group: str
    modified_at: datetime
    symlink_target: str | None


class FileMove(RequestModel):
    """An existing `to` is replaced, unless it is a non-empty directory."""

    model_config = ConfigDict(extra="forbid", validate_by_alias=True, validate_by_name=True)

    source: Annotated[FilePath, Field(alias="from")]
    to: FilePath


class DirectoryCreate(RequestModel):
    path: FilePath


class ArchiveFormat(StrEnum):
    TAR = "tar"
    TAR_GZ = "tar.gz"
