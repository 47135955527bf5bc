"""What tools of files are told alike."""

from typing import Annotated

from pydantic import Field

FilePath = Annotated[
    str,
    Field(description="The file: an absolute path, one in the workspace, or one with ~."),
]
SearchedPath = Annotated[
    str,
    Field(description="Where to look: an absolute path, one in the workspace, or one with ~."),
]
