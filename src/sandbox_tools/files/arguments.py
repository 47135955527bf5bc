"""Parameters that several file tools share."""

from typing import Annotated

from pydantic import Field

FilePath = Annotated[
    str,
    Field(description="Path of the file: absolute, relative to the working directory, or with ~."),
]
SearchedPath = Annotated[
    str,
    Field(
        description="Where to search: absolute path, relative to the working directory, or with ~."
    ),
]
