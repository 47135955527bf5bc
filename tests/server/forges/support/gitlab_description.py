"""What python-gitlab says of requests to GitLab: the tables of paths and fields in its source, which is not imported."""

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache

from tests.server.forges.support.described_api import Operation
from tests.server.forges.support.github_emulator import PROGRAMS

OBJECTS = PROGRAMS.parents[1] / "python-gitlab" / "gitlab" / "v4" / "objects"

_CRUD = frozenset({"list", "get", "create", "update"})
_OF_MIXINS: Mapping[str, frozenset[str]] = {
    "CRUDMixin": _CRUD,
    "NoUpdateMixin": _CRUD - {"update"},
    "RetrieveMixin": frozenset({"list", "get"}),
    "ListMixin": frozenset({"list"}),
    "GetMixin": frozenset({"get"}),
    "GetWithoutIdMixin": frozenset({"get-only"}),
    "CreateMixin": frozenset({"create"}),
    "UpdateMixin": frozenset({"update"}),
}
_PAGES = frozenset({"page", "per_page", "order_by", "sort"})
_ACTION = re.compile(
    r'f"\{self\.manager\.path\}/\{self\.encoded_id\}/(\w+)"(.*?)http_(\w+)\(', re.DOTALL
)
_PARAMETER = re.compile(r"\{\w+\}")
# Fields that GitLab documents and the client leaves to its callers.
_UNLISTED = frozenset({"add_labels", "query", "statistics"})


@cache
def read_operations() -> list[Operation]:
    return [each for file in sorted(OBJECTS.glob("*.py")) for each in _of_file(file.read_text())]


def _of_file(text: str) -> Iterator[Operation]:
    classes: dict[str, ast.ClassDef] = {}
    for node in ast.parse(text).body:
        if isinstance(node, ast.ClassDef):
            classes[node.name] = node
            lineage = [classes[name] for name in _bases(node) if name in classes]
            yield from _of_manager([node, *lineage], text)


def _of_manager(lineage: Sequence[ast.ClassDef], text: str) -> Iterator[Operation]:
    """List the operations of a class, whose base in the same file may have what it lacks."""
    fields = {name: value for each in reversed(lineage) for name, value in _assignments(each)}
    if not isinstance(given := fields.get("_path"), ast.Constant):
        return
    path, names = str(given.value), {name for each in lineage for name in _bases(each)}
    verbs = {verb for name in names for verb in _OF_MIXINS.get(name, ())}
    if "list" in verbs:
        yield _operation("GET", path, query=_words(fields.get("_list_filters")) | _PAGES)
    if "get" in verbs:
        yield _operation("GET", f"{path}/{{id}}", query=_words(fields.get("_optional_get_attrs")))
    if "get-only" in verbs:
        yield _operation("GET", path)
    if "create" in verbs:
        yield _operation("POST", path, body=_words(fields.get("_create_attrs")))
    if "update" in verbs:
        yield _operation("PUT", f"{path}/{{id}}", body=_words(fields.get("_update_attrs")))
    for name, _, method in _ACTION.findall(text):
        yield _operation(method.upper(), f"{path}/{{id}}/{name}")


def _assignments(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for each in node.body:
        if isinstance(each, ast.Assign) and isinstance(each.targets[0], ast.Name):
            yield each.targets[0].id, each.value


def _bases(node: ast.ClassDef) -> set[str]:
    return {each.id for base in node.bases for each in ast.walk(base) if isinstance(each, ast.Name)}


def _words(value: ast.expr | None) -> frozenset[str]:
    if value is None:
        return frozenset()
    constants = (each.value for each in ast.walk(value) if isinstance(each, ast.Constant))
    return frozenset(each for each in constants if isinstance(each, str))


def _operation(
    method: str, path: str, *, query: frozenset[str] = _UNLISTED, body: frozenset[str] = _UNLISTED
) -> Operation:
    pattern = "[^/]+".join(re.escape(part) for part in _PARAMETER.split(path))
    return Operation(method, re.compile(pattern), query | _UNLISTED, body | _UNLISTED)
