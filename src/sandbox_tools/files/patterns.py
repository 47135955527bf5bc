import re

from fastmcp.exceptions import ToolError

_BRACES = re.compile(r"\{([^{}]*,[^{}]*)\}")
_MOST_BRACES = 8
_TOKEN = re.compile(r"\\(?P<escaped>.)|(?P<class>\[[!^]?\]?[^]]*\])|(?P<one>.)", re.DOTALL)
_SEVERAL = re.compile(r"(\*\*/)+")
_ONE = {"*": "[^/]*", "?": "[^/]"}


def compile_glob(pattern: str) -> re.Pattern[str]:
    """Make a regular expression that matches whole paths: `**` is any number of directories, `{a,b}` one of several."""
    if pattern.count("{") > _MOST_BRACES:
        raise ToolError(f"A pattern may have at most {_MOST_BRACES} braces. Use several patterns.")
    try:
        return re.compile(
            "|".join(f"(?:{_path(choice)})" for choice in _choices(pattern)), re.DOTALL
        )
    except re.error as error:
        raise ToolError(f"{pattern} is not a pattern for paths: {error}.") from None


def _choices(pattern: str) -> list[str]:
    braces = _BRACES.search(pattern)
    if braces is None:
        return [pattern]
    before, after = pattern[: braces.start()], pattern[braces.end() :]
    return [
        choice for part in braces[1].split(",") for choice in _choices(f"{before}{part}{after}")
    ]


def _path(pattern: str) -> str:
    *directories, name = _SEVERAL.sub("**/", pattern).split("/")
    above = ("(?:[^/]+/)*" if part == "**" else f"{_name(part)}/" for part in directories)
    return "".join(above) + (".+" if name == "**" else _name(name))


def _name(pattern: str) -> str:
    return "".join(map(_part, _TOKEN.finditer(pattern)))


def _part(token: re.Match[str]) -> str:
    if escaped := token["escaped"]:
        return re.escape(escaped)
    if characters := token["class"]:
        inside = characters[1:-1].replace("\\", r"\\").replace("[", r"\[")
        return f"(?!/)[{'^' + inside[1:] if inside[0] in '!^' else inside}]"
    return _ONE.get(token["one"], re.escape(token["one"]))
