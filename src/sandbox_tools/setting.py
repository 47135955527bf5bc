import argparse
import sys
from collections.abc import Sequence

from sandbox_tools.settings_file import SettingsFile

_NAMES = ("password", "sandbox_id", "api_url", "ports_url", "token")


def main(arguments: Sequence[str]) -> int:
    """Print a setting for programs that read no JSON; without a value nothing, and fail."""
    parser = argparse.ArgumentParser(prog="sandbox-tools setting")
    parser.add_argument("name", choices=_NAMES)
    value = getattr(SettingsFile().read(), parser.parse_args(arguments).name)
    if value is None:
        return 1
    sys.stdout.write(f"{value}\n")
    return 0
