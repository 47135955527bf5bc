"""What tools of files are told alike."""

from typing import Annotated

from pydantic import Field

FilePath = Annotated[
    str,
    Field(
        description="File: an absolute path, one relative to the working directory, or one with ~."
    ),
]
SearchedPath = Annotated[
    str,
    Field(
        description="Where to look: an absolute path, one relative to the working directory, or one with ~."
    ),
]
