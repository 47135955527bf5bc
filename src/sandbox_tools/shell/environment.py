import os

from sandbox_tools.toolkit.settings_file import SettingsFile

# The services run in tmux themselves: with these, tmux in a command would reach theirs.
_TMUX_VARIABLES = ("TMUX", "TMUX_PANE")
_LOCALES = ("LANG", "LC_ALL", "LC_CTYPE")


def inherited_environment() -> dict[str, str]:
    """Give what programs inherit from the tool server."""
    inherited = {name: value for name, value in os.environ.items() if name not in _TMUX_VARIABLES}
    if not any(inherited.get(name) for name in _LOCALES):
        inherited["LANG"] = "C.UTF-8"
    return inherited


def sandbox_environment(settings: SettingsFile) -> dict[str, str]:
    """Give what the sandbox was created with; the services were started before that was known."""
    given = settings.read().envs
    return {
        name: value
        for name, value in given.items()
        if name and "=" not in name and "\0" not in f"{name}{value}"
    }
