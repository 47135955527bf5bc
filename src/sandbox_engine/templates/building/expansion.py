import re
from collections.abc import Mapping

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_REFERENCE = re.compile(
    rf"\$(?:(?P<bare>{_NAME})|\{{(?P<name>{_NAME})(?::(?P<mode>[-+])(?P<word>[^}}]*))?\}})"
)


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Put values in for `$NAME`, `${NAME}`, `${NAME:-word}` and `${NAME:+word}`; nothing is run."""

    def value(reference: re.Match[str]) -> str:
        found = variables.get(reference["bare"] or reference["name"], "")
        match reference["mode"]:
            case "-":
                return found or reference["word"]
            case "+":
                return reference["word"] if found else ""
        return found

    return _REFERENCE.sub(value, text)
