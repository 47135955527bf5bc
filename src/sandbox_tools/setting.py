import argparse
import sys
from collections.abc import Sequence

from sandbox_tools.toolkit.settings_file import TEXTS, SettingsFile


def main(arguments: Sequence[str]) -> int:
    """Print a setting for programs that cannot read JSON; exit with 1 if it is not set."""
    parser = argparse.ArgumentParser(prog="sandbox-tools setting")
    parser.add_argument("name", choices=TEXTS)
    value = getattr(SettingsFile().read(), parser.parse_args(arguments).name)
    if value is None:
        return 1
    sys.stdout.write(f"{value}\n")
    return 0
