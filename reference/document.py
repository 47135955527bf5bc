"""The API's reference for people: docs/api.md, written from the snapshot, the examples and what was answered to them."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from reference import snapshot
from reference.examples import read_answers, read_examples
from sandbox_server.domain.errors import SandboxError
from sandbox_server.http import faults
from sandbox_server.http.faults import Fault
from sandbox_server.openapi import codes_of

FILE = Path(__file__).parents[1] / "docs" / "api.md"

_INTRODUCTION = """# The API

Written by `make openapi` from the API's description, [openapi.json](openapi.json), which generates clients too. Each example is
run by a test; what is shown as its answer is shortened (…). `$SERVER` is the server's address and `$KEY` an API key, which may
also be sent as `Authorization: Bearer`. `--json` of curl sends a body with `Content-Type: application/json`.

Errors are `application/problem+json` ([Problem](#problem)) with a stable `code`; all of them are [at the end](#problems). What any
operation may answer is not said again at each: {common}. With a body also 413
`body-too-large` and 415 `unsupported-media-type`. Lists come in parts of `limit` items, of which `next_cursor` asks for the
following.
"""
_TAGS = {
    "sandboxes": "Sandboxes",
    "ports": "Ports",
    "commands": "Commands",
    "agents": "Coding agents",
    "terminals": "Terminals",
    "files": "Files",
    "snapshots": "Snapshots",
    "templates": "Templates",
    "events": "Events and logs",
    "mcp": "MCP",
    "access": "Access",
    "operations": "Operations",
    "health": "Health",
    "verbs": "The nine verbs",
}
_PAGED = {"cursor", "limit"}
_IN_PATH = "path"
_TOO_LARGE_TO_TELL = 2**40

Described = Mapping[str, Any]


def written() -> str:
    """Write the document of the API as it is now."""
    examples = {example.operation: example.curl for example in read_examples()}
    return render(snapshot.now(), examples, read_answers())


def render(description: Described, examples: Mapping[str, str], answers: Mapping[str, str]) -> str:
    """Write the document; `examples` and `answers` are by the names of operations."""
    by_tag: defaultdict[str, list[tuple[str, Described]]] = defaultdict(list)
    operations = list(_operations(description))
    common = _common([operation for _, operation in operations])
    for call, operation in operations:
        by_tag[operation["tags"][0]].append((call, operation))
    parts = [_INTRODUCTION.format(common=_said(common)), _contents(by_tag)]
    for tag in (*_TAGS, *sorted(by_tag.keys() - _TAGS.keys())):
        parts.append(f"## {_TAGS.get(tag, tag)}\n")
        for call, operation in by_tag[tag]:
            name = operation["operationId"]
            parts.append("\n".join(_of_operation(call, operation, common)))
            parts.append(_example(examples.get(name, ""), answers.get(name, "")))
    schemas = description["components"]["schemas"]
    parts.append("## Schemas\n")
    parts.extend("\n".join(_of_schema(name, schemas[name])) for name in sorted(schemas))
    parts.append(_problems({code for _, one in operations for _, code in _codes(one)}))
    return "\n".join(parts)


def _operations(description: Described) -> Iterator[tuple[str, Described]]:
    for path, item in description["paths"].items():
        for method, operation in item.items():
            yield f"{method.upper()} {path}", operation


def _contents(by_tag: Mapping[str, Iterable[tuple[str, Described]]]) -> str:
    lines = []
    for tag, title in _TAGS.items():
        names = (operation["operationId"] for _, operation in by_tag[tag])
        lines.append(f"- {title}: {', '.join(f'[{name}](#{name})' for name in names)}")
    return "\n".join([*lines, ""])


def _common(operations: Iterable[Described]) -> set[tuple[int, str]]:
    """Find what all operations that take a key may answer."""
    keyed = [set(_codes(one)) for one in operations if one["security"]]
    return set.intersection(*keyed) | {(403, "scope-missing"), (422, "validation-failed")}


def _codes(operation: Described) -> Iterator[tuple[int, str]]:
    for status, codes in codes_of(operation).items():
        for code in codes:
            yield status, code


def _said(codes: Iterable[tuple[int, str]]) -> str:
    by_status: defaultdict[int, list[str]] = defaultdict(list)
    for status, code in sorted(codes):
        by_status[status].append(f"`{code}`")
    return "; ".join(f"{status} {', '.join(of)}" for status, of in by_status.items())


def _of_operation(call: str, operation: Described, common: set[tuple[int, str]]) -> Iterator[str]:
    yield f"### {operation['operationId']}\n"
    yield f"`{call}`\n"
    yield f"{operation['description'].strip()}\n"
    yield from _parameters(operation.get("parameters", []))
    if (body := operation.get("requestBody")) is not None:
        optional = "" if body.get("required") else ", which may be left out"
        kinds = (_type(each.get("schema", {})) for each in body["content"].values())
        yield f"- Body: {' or '.join(kinds)}{optional}"
    yield f"- Answers: {_answers(operation)}"
    own = set(_codes(operation)) - common - {(413, "body-too-large")}
    if problems := _said(own - {(415, "unsupported-media-type"), (404, "route-not-found")}):
        yield f"- Problems: {problems}"
    yield ""


def _parameters(parameters: Iterable[Described]) -> Iterator[str]:
    for each in parameters:
        if each["in"] == _IN_PATH or each["name"] in _PAGED:
            continue
        facts = [each["in"], _type(each["schema"]), *_bounds(each["schema"])]
        said = each.get("description") or _description(each["schema"])
        yield f"- `{each['name']}` ({', '.join(facts)}){said and f': {said}'}"


def _description(schema: Described) -> str:
    """Find what is said of a field, or of its type where it may be null too."""
    kinds = schema.get("anyOf", ())
    found = (each["description"] for each in (schema, *kinds) if "description" in each)
    return str(next(found, ""))


def _bounds(schema: Described) -> Iterator[str]:
    kind = next((each for each in schema.get("anyOf", ()) if each.get("type") != "null"), schema)
    if "minimum" in kind and kind.get("maximum", math.inf) < _TOO_LARGE_TO_TELL:
        yield f"{kind['minimum']:g} to {kind['maximum']:g}"
    if schema.get("default") not in (None, "", [], {}):
        yield f"else {json.dumps(schema['default'], ensure_ascii=False)}"


def _answers(operation: Described) -> str:
    told = []
    for status, response in operation["responses"].items():
        if "$ref" in response:
            continue
        kinds = (
            f"`{media_type}`" if _is_plain(content) else _type(content["schema"])
            for media_type, content in response.get("content", {}).items()
        )
        told.append(" ".join([status, " or ".join(kinds)]).strip())
    return ", ".join(told)


def _is_plain(content: Described) -> bool:
    return not content.get("schema") or content["schema"].get("type") == "string"


def _type(schema: Described) -> str:
    """Name a type as people do, with a link to what is described below."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    kinds = schema.get("anyOf", schema.get("oneOf", ()))
    if values or kinds:
        return " or ".join([*(f"`{each}`" for each in values), *(_type(each) for each in kinds)])
    return _plain_type(schema)


def _plain_type(schema: Described) -> str:
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema['items'])}"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"object of {_type(schema['additionalProperties'])}"
        case "string" if "format" in schema:
            return {"date-time": "instant", "binary": "bytes"}.get(schema["format"], "string")
        case kind:
            return kind or "anything"


def _example(curl: str, answer: str) -> str:
    shown = f"```sh\n{curl}\n```\n"
    kind = "json" if answer[:1] in {"{", "["} else "text"
    return f"{shown}\n```{kind}\n{answer.rstrip()}\n```\n" if answer.strip() else shown


def _of_schema(name: str, schema: Described) -> Iterator[str]:
    yield f"### {name}\n"
    if "description" in schema:
        yield f"{schema['description'].strip()}\n"
    if "enum" in schema:
        yield f"One of {', '.join(f'`{each}`' for each in schema['enum'])}.\n"
    required = schema.get("required", ())
    fields = schema.get("properties", {})
    if not fields:
        return
    is_given = schema.get("additionalProperties") is False
    yield "| field | type | |\n|---|---|---|"
    for field, of in fields.items():
        facts = [*_bounds(of), *(["required"] if is_given and field in required else [])]
        said = f"{_description(of)} ({', '.join(facts)})" if facts else _description(of)
        yield _row(f"`{field}`", _type(of), said)
    yield ""


def _row(*cells: str) -> str:
    return f"| {' | '.join(' '.join(cell.split()).replace('|', chr(92) + '|') for cell in cells)} |"


def _problems(codes: Iterable[str]) -> str:
    known = {each.code: each for each in chain(_errors(SandboxError), _faults())}
    rows = (
        _row(
            f"`{code}`",
            str(known[code].status),
            f"{known[code].title}. {known[code].remediation or ''}",
        )
        for code in sorted(codes)
    )
    return "\n".join(chain(["## Problems\n", "| code | status | |", "|---|---|---|"], rows, [""]))


def _errors(root: type[SandboxError]) -> Iterator[Fault]:
    for error in root.__subclasses__():
        yield Fault(error.code, "", error.remediation)
        yield from _errors(error)


def _faults() -> Iterator[Fault]:
    yield from (each for each in vars(faults).values() if isinstance(each, Fault))
