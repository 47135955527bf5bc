from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

_MARKS = {
    "works": "yes",
    "not implemented": "no",
    "unreachable": "(yes)",
    "refused by the SDK": "(sdk)",
    "without token": "(no)",
    "absent": "·",
    "fails": "FAILS",
    "no probe": "?",
}
_WORST_LAST = (
    "absent",
    "works",
    "refused by the SDK",
    "unreachable",
    "without token",
    "not implemented",
    "no probe",
    "fails",
)

_INTRODUCTION = """# Compatibility with E2B's SDKs

Written by `make compat`, which calls every public method of each SDK version against a real engine over TLS. The SDKs find
the engine by its domain. The Python SDK runs both blocking and asynchronously; the table shows the worse result.

- **yes**: a probe called the method and checked the result.
- **(yes)**: the engine understood the request and refused it with the expected reason: it could not reach the image's
  registry, or the base image lacks the program. Any other error counts as a failure.
- **(sdk)**: the SDK refuses the method unless the template is based on one of E2B's own templates (`mcp-gateway`,
  `devcontainer`). The engine receives no request.
- **no**: not implemented. The engine answers 501 and names the feature.
- **(no)**: this SDK version does not send the sandbox's access token, and the engine requires it.
- **·**: this SDK version does not have the method.

Snapshots, forks and pauses without memory keep files but not processes. E2B keeps memory as well; this engine cannot.
"""


@dataclass(frozen=True)
class Finding:
    """Result of one method in one version of an SDK."""

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
    missing = {
        (finding.method, finding.detail)
        for finding in findings
        if finding.verdict == "not implemented"
    }
    if not missing:
        return ""
    lines = [f"- `{method}`: {detail}" for method, detail in sorted(missing)]
    return "\n".join(["## Answers to what is not implemented", "", *lines, ""])
