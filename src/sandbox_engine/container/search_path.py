import shlex

STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# First in its directory, so that later files can still extend the path.
PROFILE = "etc/profile.d/00-template-path.sh"


def with_standard(path: str) -> str:
    """Append the standard directories that are missing in the path."""
    directories = path.split(":")
    missing = (directory for directory in STANDARD_PATH.split(":") if directory not in directories)
    return ":".join((*directories, *missing))


def profile(path: str) -> str:
    """Set the path again for login shells: a distribution's profile overrides it."""
    return f"export PATH={shlex.quote(with_standard(path))}\n"
