import os
import shutil
from importlib.util import find_spec
from pathlib import Path

NOT_INSTALLED = "No browser is installed in this sandbox. The template agent-full includes one."

_NAMES = ("chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """Find the system's Chromium; playwright is installed without its own."""
    return next((found for name in _NAMES if (found := shutil.which(name))), None)


def is_installed() -> bool:
    return find_chromium() is not None and find_spec("playwright") is not None


def browser_directory() -> Path:
    """Return the private directory for cookies, storage and cache."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "sandbox-tools" / "browser"
