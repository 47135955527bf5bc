from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

_MARKS = {
    "works": "yes",
    "not implemented": "no",
    "unreachable": "(yes)",
    "without token": "(no)",
    "absent": "·",
    "fails": "FAILS",
    "no probe": "?",
}
_WORST_LAST = (
    "absent",
    "works",
    "unreachable",
    "without token",
    "not implemented",
    "no probe",
    "fails",
)

_INTRODUCTION = """# What of E2B's SDKs works here

Written by `make compat` from a run of every public method of each version against a real engine over TLS, found
by its domain alone. Python is run blocking and asynchronous, and the worse of the two is shown.

- **yes**: a probe used it and checked what came back.
- **(yes)**: understood, and refused with a clear error, because what it needs (an image in a registry, software in
  the base image) was not at hand.
- **no**: not implemented; the engine says so with a 501 that names it.
- **(no)**: this version forgets the sandbox's access token, and no sandbox is open to those who have none.
- **·**: this version of the SDK does not have it.

Of every kind of sandbox copy (snapshot, fork, pause without memory) files are kept and processes are not: E2B copies
memory too, this engine cannot.
"""


@dataclass(frozen=True)
class Finding:
    """What came of one method in one version of an SDK."""

    version: str
    method: str
    verdict: str
    detail: str = ""


def render(findings: Sequence[Finding], *, languages: Iterable[tuple[str, Sequence[str]]]) -> str:
    """Write the document."""
    parts = [_INTRODUCTION]
    for language, versions in languages:
        columns = [f"{language} {version}" for version in versions]
        parts.append(f"## {language}\n\n{_table(findings, columns)}")
    return "\n".join([*parts, _refusals(findings)])


def _table(findings: Sequence[Finding], columns: Sequence[str]) -> str:
    verdicts: dict[tuple[str, str], str] = {}
    for one in findings:
        key = one.method, one.version
        verdicts[key] = max(verdicts.get(key, "absent"), one.verdict, key=_WORST_LAST.index)
    methods = sorted({method for method, version in verdicts if version in columns})
    lines = [_row("", (column.split()[-1] for column in columns))]
    lines.append(_row("---", (":-:" for _ in columns)))
    for _, group in groupby(methods, key=lambda method: method.partition(".")[0]):
        for method in group:
            marks = (_MARKS[verdicts.get((method, column), "absent")] for column in columns)
            lines.append(_row(f"`{method}`", marks))
    return "\n".join(lines) + "\n"


def _row(first: str, cells: Iterable[str]) -> str:
    return f"| {' | '.join((first, *cells))} |"


def _refusals(findings: Sequence[Finding]) -> str:
    told = {(one.method, one.detail) for one in findings if one.verdict == "not implemented"}
    if not told:
        return ""
    lines = [f"- `{method}`: {detail}" for method, detail in sorted(told)]
    return "\n".join(["## What the engine answers to what is not implemented", "", *lines, ""])
