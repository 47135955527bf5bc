import os
import shutil
from importlib.util import find_spec
from pathlib import Path

NOT_INSTALLED = (
    "There is no browser in this sandbox; sandboxes of the template agent-full have one."
)

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """Find the system's Chromium; playwright is there without one of its own."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


def is_installed() -> bool:
    return find_chromium() is not None and find_spec("playwright") is not None


def browser_directory() -> Path:
    """Name where the browser keeps cookies, storage and cache, of this user alone."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "sandbox-tools" / "browser"
