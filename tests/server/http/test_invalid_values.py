"""Every parameter and field of every operation, with malicious values."""

import json
from typing import Any
from urllib.parse import quote

import pytest

from tests.server.support.described_answers import list_operations
from tests.server.support.unreachable_backend import backends_nowhere

TEXTS = ["\0", "\ud800", "", "x" * 5000, "../../etc", "a\r\nb: c", "'; --", "💥", "1e999", "-1"]
VALUES = [
    *TEXTS,
    None,
    True,
    [],
    {},
    -1,
    0.5,
    2**31,
    2**63,
    10**400,
    1e308,
    {"\0": "\0"},
    {"a\0": {"b": "\ud800"}},
    ["\0", {"match": {}}],
]


FAILURES = {500, 502}
ABSENT = "0" * 20


@pytest.fixture
async def backends(sessions):
    async with backends_nowhere(sessions) as backends:
        yield backends


@pytest.fixture
def operations():
    return list_operations()


@pytest.fixture
async def send(admin):
    """Send a valid request for an existing sandbox, except for the given value."""
    made = await admin.post("/v1/sandboxes", params={"wait": 0}, json={})
    assert made.status_code == 202, made.text
    named = {"sandbox_id": made.json()["id"], "name": "other", "session_id": "s", "port": "80"}
    # New sandboxes are rejected from here on: no engine could start them, and some requests would wait.
    assert (await admin.put("/v1/tenants/default", json={"max_queued": 0})).status_code == 200

    async def send(operation, *, parameters=None, body=None):
        path, query, headers = (
            operation.path,
            {**operation.query, "wait": "0"},
            {"Content-Type": "application/json"},
        )
        for parameter in operation.parameters:
            name, place = parameter["name"], parameter["in"]
            text = (parameters or {}).get(name)
            if place == "path":
                usual = ABSENT if operation.method == "delete" else named.get(name, ABSENT)
                path = path.replace(f"{{{name}}}", in_url(text or usual))
            elif text is not None and place == "query":
                query[name] = readable(text)
            elif text is not None:
                headers[name] = in_url(text)
        content = None if body is None else json.dumps({**operation.required, **body})
        return await admin.request(
            operation.method, path, params=query, headers=headers, content=content
        )

    return send


@pytest.mark.slow  # exhaustive: each value for each parameter
async def test_request_validation__no_parameter_value_causes_a_server_error(send, operations):
    failed = []
    for operation in operations:
        for parameter in operation.parameters:
            for text in TEXTS:
                if parameter["in"] == "path" and not text:
                    continue  # a different path
                sent = {parameter["name"]: text}
                body: dict[str, Any] | None = {} if operation.fields else None
                answer = await send(operation, parameters=sent, body=body)
                if answer.status_code in FAILURES:
                    failed.append((operation.path, sent))
    assert failed == []


async def test_request_validation__no_body_value_causes_a_server_error(send, operations):
    failed = []
    for operation in operations:
        for name in operation.fields:
            for value in VALUES:
                answer = await send(operation, body={name: value})
                if answer.status_code in FAILURES:
                    failed.append((operation.path, name, value))
    assert failed == []


def in_url(text):
    return quote(readable(text), safe="")


def readable(text):
    return text.encode(errors="replace").decode()
