from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

DEFAULT_USER = "user"


@dataclass(frozen=True)
class Image:
    """An image: its layers, lowest first, and defaults of commands.

    Without a working directory commands start in the user's home.
    """

    layers: tuple[Path, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    user: str = DEFAULT_USER
    workdir: str = ""
