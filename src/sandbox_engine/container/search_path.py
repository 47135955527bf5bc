import shlex

STANDARD_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# The first of its directory: what others there add to the path is not lost.
PROFILE = "etc/profile.d/00-template-path.sh"


def with_standard(path: str) -> str:
    """Add the usual directories, so that the usual tools are found whatever an image says."""
    directories = path.split(":")
    missing = (one for one in STANDARD_PATH.split(":") if one not in directories)
    return ":".join((*directories, *missing))


def profile(path: str) -> str:
    """Set the path once more where login shells begin: a distribution's profile sets its own."""
    return f"export PATH={shlex.quote(with_standard(path))}\n"
