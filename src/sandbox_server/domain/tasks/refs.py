"""Names of git's refs."""

import re

_REF = re.compile(r"refs(?:/(?!\.)[^\x00-\x20\x7f~^:?*\[\\/]+)+")


def is_ref(name: str) -> bool:
    """Return whether git accepts this as the full name of a ref."""
    parts = name.split("/")
    return (
        _REF.fullmatch(name) is not None
        and ".." not in name
        and "@{" not in name
        and not any(part.endswith((".lock", ".")) for part in parts)
        and "\ufffd" not in name
    )


def is_branch(name: str) -> bool:
    """Return whether git accepts this as the name of a branch."""
    return is_ref(f"refs/heads/{name}") and not name.startswith("-") and name != "HEAD"
