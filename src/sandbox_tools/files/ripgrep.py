import re

from sandbox_tools.files.directory_walk import LEFT_OUT
from sandbox_tools.files.query import Query
from sandbox_tools.toolkit.truncation import MOST_OF_A_LINE

# The user's ripgrep configuration and ignore files do not change the results.
_FIXED = "--crlf --no-config --no-ignore --hidden --no-messages --color=never --sort=path".split()
_LONG_LINES = ["--max-columns-preview", f"--max-columns={MOST_OF_A_LINE}"]
_MODES = {
    "content": ["--with-filename", "--null", "--line-number", "--no-heading", *_LONG_LINES],
    "files": ["--files-with-matches"],
    "count": ["--with-filename", "--null", "--count"],
}
_NUMBERED = re.compile(r"\d+([:-])")


def command(query: Query, program: str) -> list[str]:
    """Say how it is run, in the directory where the globs are to begin."""
    return [
        *(program, *_FIXED, *_MODES[query.mode], *_asked(query)),
        *("--regexp", query.pattern, "--", f"./{query.root.relative_to(query.directory)}"),
    ]


def _asked(query: Query) -> list[str]:
    globs = [query.glob] if query.glob else []
    globs += [f"!{name}/" for name in sorted(LEFT_OUT)]
    return [
        *(f"--glob={glob}" for glob in globs),
        *(["--fixed-strings"] if query.is_literal else []),
        *(["--ignore-case"] if query.ignores_case else []),
        *([f"--context={query.context}"] if query.mode == "content" else []),
    ]


def told(query: Query, line: str) -> str | None:
    """Tell a line of its output as it is told to agents."""
    if query.mode == "files" or line == "--":
        return query.told(line) if query.mode == "files" else line
    name, _, rest = line.partition("\0")
    if query.mode == "count":
        return f"{query.told(name)}:{rest}"
    number = _NUMBERED.match(rest)
    # What has no number is about a binary file, in which nothing is shown.
    return f"{query.told(name)}{number[1]}{rest}" if number else None
