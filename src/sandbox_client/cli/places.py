from dataclasses import dataclass

STANDARD = "-"


@dataclass(frozen=True)
class Place:
    """Where something is copied from or to: a path here, or in a sandbox."""

    sandbox: str | None
    path: str

    @property
    def is_standard(self) -> bool:
        """Whether it is stdin or stdout."""
        return self.sandbox is None and self.path == STANDARD


def read_place(text: str) -> Place:
    """Read `SANDBOX:PATH`, or a path here; one with a colon in its first part is written `./a:b`."""
    named, colon, path = text.partition(":")
    if not (colon and named) or "/" in named:
        return Place(None, text)
    return Place(named, path or ".")


def name_in(path: str) -> str:
    """Give the last part of a path, if it is a name."""
    name = path.rstrip("/").rpartition("/")[2]
    return "" if name in (".", "..", "~") else name


def within(directory: str, name: str) -> str:
    """Give the path of something in a directory."""
    return f"{directory.rstrip('/') or '/'}/{name}".replace("//", "/") if name else directory
