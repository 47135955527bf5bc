import os
import shlex
from collections.abc import Iterable, Mapping, Sequence

from sandbox_client.cli.output.failures import CliError


def line_of(words: Sequence[str]) -> str:
    """Join arguments into a shell command line; a single word is a command line already."""
    return words[0] if len(words) == 1 else shlex.join(words)


def read_environment(
    text: Iterable[str], *, local: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Parse variables: `K=V`, or `K` to take the local value."""
    read = {}
    for each in text:
        name, sign, value = each.partition("=")
        if not sign and name not in local:
            raise CliError(f"Environment variable {name} is not set. Use {name}=VALUE.")
        read[name] = value if sign else local[name]
    return read
