import os
from collections.abc import Iterable, Mapping

from sandbox_client.cli.failures import Failure


def read_environment(
    said: Iterable[str], *, here: Mapping[str, str] = os.environ
) -> dict[str, str]:
    """Read variables: `K=V`, or `K` for the value that it has here."""
    read = {}
    for each in said:
        name, sign, value = each.partition("=")
        if not sign and name not in here:
            raise Failure(f"The variable {name} is not set here: write {name}=VALUE.")
        read[name] = value if sign else here[name]
    return read
