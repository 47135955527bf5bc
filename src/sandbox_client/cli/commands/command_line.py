import os
import shlex
from collections.abc import Iterable, Mapping, Sequence

from sandbox_client.cli.output.failures import CliError


def line_of(words: Sequence[str]) -> str:
    """Write a command as a line for a shell: one word is such a line, several are arguments."""
    return words[0] if len(words) == 1 else shlex.join(words)


def read_environment(
    text: Iterable[str], *, local: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Read variables: `K=V`, or `K` for the value that it has here."""
    read = {}
    for each in text:
        name, sign, value = each.partition("=")
        if not sign and name not in local:
            raise CliError(f"The variable {name} is not set here: write {name}=VALUE.")
        read[name] = value if sign else local[name]
    return read
