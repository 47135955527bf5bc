"""Finds changes of the API's description that break existing callers: /v1 grows only by addition."""

from collections.abc import Iterator, Mapping
from typing import Any

Description = Mapping[str, Any]


def breaks(before: Description, after: Description) -> Iterator[str]:
    """List uses of `before` that `after` no longer allows."""
    for name, old in _operations(before).items():
        new = _operations(after).get(name)
        if new is None:
            yield f"{name} is gone"
        else:
            yield from (f"{name}: {what}" for what in _of_operation(old, new))
    given = _used_by(after, "requestBody")
    new_schemas = after["components"]["schemas"]
    for name, old in before["components"]["schemas"].items():
        if name in new_schemas:
            found = _of_schema(old, new_schemas[name], is_given=name in given)
            yield from (f"{name}: {what}" for what in found)


def _operations(description: Description) -> dict[str, Any]:
    return {
        f"{method.upper()} {path}": operation
        for path, item in description["paths"].items()
        for method, operation in item.items()
    }


def _of_operation(old: Description, new: Description) -> Iterator[str]:
    if old["operationId"] != new["operationId"]:
        yield f"its name was {old['operationId']!r}"
    old_parameters, new_parameters = _parameters(old), _parameters(new)
    for key in old_parameters.keys() - new_parameters.keys():
        yield f"the parameter {key[1]!r} is gone"
    for key, parameter in new_parameters.items():
        was_required = old_parameters.get(key, {}).get("required", False)
        if parameter.get("required", False) and not was_required:
            yield f"the parameter {key[1]!r} has become required"
    for status in old["responses"].keys() - new["responses"].keys():
        if status.startswith("2"):
            yield f"it answers no {status} any more"


def _parameters(operation: Description) -> dict[tuple[str, str], Any]:
    return {(each["in"], each["name"]): each for each in operation.get("parameters", [])}


def _of_schema(old: Description, new: Description, *, is_given: bool) -> Iterator[str]:
    old_fields, new_fields = old.get("properties", {}), new.get("properties", {})
    for field in old_fields.keys() - new_fields.keys():
        yield f"the field {field!r} is gone"
    for field in old_fields.keys() & new_fields.keys():
        if _types(old_fields[field]) - _types(new_fields[field]):
            yield f"the field {field!r} is of another type"
    old_required, new_required = set(old.get("required", ())), set(new.get("required", ()))
    if is_given:
        yield from (
            f"the field {each!r} has become required" for each in new_required - old_required
        )
    else:
        yield from (f"the field {each!r} may be left out" for each in old_required - new_required)
    for value in set(old.get("enum", ())) - set(new.get("enum", ())):
        yield f"there is no {value!r} any more"


def _types(schema: Description) -> set[str]:
    kinds = schema.get("anyOf", schema.get("oneOf", [schema]))
    return {str(kind.get("$ref", kind.get("type"))) for kind in kinds}


def _used_by(description: Description, part: str) -> set[str]:
    """Collect the schemas used in a part of the operations, with the schemas that they use."""
    schemas = description["components"]["schemas"]
    found: set[str] = set()
    left = {
        name
        for operation in _operations(description).values()
        for name in _named_in(operation.get(part))
    }
    while left:
        found |= left
        left = {name for each in left for name in _named_in(schemas[each])} - found
    return found


def _named_in(part: Any) -> Iterator[str]:
    if isinstance(part, dict):
        if isinstance(part.get("$ref"), str):
            yield part["$ref"].rpartition("/")[2]
        for each in part.values():
            yield from _named_in(each)
    elif isinstance(part, list):
        for each in part:
            yield from _named_in(each)
