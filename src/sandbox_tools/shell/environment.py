import os

from sandbox_tools.toolkit.settings_file import SettingsFile

# Services run in tmux: with these variables tmux in a command would use their server.
_TMUX_VARIABLES = ("TMUX", "TMUX_PANE")
_LOCALES = ("LANG", "LC_ALL", "LC_CTYPE")


def inherited_environment() -> dict[str, str]:
    """Return the tool server's environment for child processes."""
    inherited = {name: value for name, value in os.environ.items() if name not in _TMUX_VARIABLES}
    if not any(inherited.get(name) for name in _LOCALES):
        inherited["LANG"] = "C.UTF-8"
    return inherited


def sandbox_environment(settings: SettingsFile) -> dict[str, str]:
    """Return the variables that the sandbox was created with; services start before they are known."""
    envs = settings.read().envs
    return {
        name: value
        for name, value in envs.items()
        if name and "=" not in name and "\0" not in f"{name}{value}"
    }
