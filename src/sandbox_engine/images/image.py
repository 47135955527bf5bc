from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_USER = "user"


@dataclass(frozen=True)
class Image:
    """Files, as layers with the lowest first, and how commands run on them.

    Without a working directory commands start in their user's home.
    """

    layers: tuple[Path, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = DEFAULT_USER
    workdir: str = ""
