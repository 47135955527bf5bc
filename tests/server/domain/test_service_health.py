import json

import pytest

from sandbox_server.tools.health import (
    Availability,
    McpServer,
    ToolServerHealth,
    parse_tool_server_health,
)

READY = ToolServerHealth(state=Availability.READY)


def test_service_health__reads_a_tool_servers_report():
    said = {
        "version": "1.2",
        "tools": 17,
        "servers": {"mine": {"state": "failed", "error": "It ended.", "tools": 0}, "other": {}},
    }
    told = parse_tool_server_health(json.dumps(said).encode())
    assert (told.state, told.version, told.tools) == (Availability.READY, "1.2", 17)
    assert told.servers == {
        "mine": McpServer(state="failed", error="It ended.", tools=0),
        "other": McpServer(state="unknown"),
    }


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\xff\xfe",
        b"[" * 60_000,
        b'{"a":' * 12_000,
        b"[1]",
        b"9" * 60_000,
        b'{"version": 1, "tools": "many", "servers": ["a"]}',
        b'{"tools": true, "servers": {"a": 1, "": {"state": "ready"}}}',
        b'{"tools": -1, "version": "", "servers": null}',
    ],
)
def test_service_health__omits_invalid_entries(said):
    assert parse_tool_server_health(said) == READY


def test_service_health__is_bounded_and_storable():
    said = {
        "version": "\0\ud800" + "v" * 1000,
        "servers": {
            f"{n}" * 100: {"state": "s" * 1000, "error": "\0" + "e" * 1000} for n in range(500)
        },
    }
    told = parse_tool_server_health(json.dumps(said).encode())
    words = [told.version or "", *told.servers]
    words += [f"{one.state}{one.error}" for one in told.servers.values()]
    assert len(told.servers) <= 100
    assert max(map(len, words)) < 400
    assert "\0" not in "".join(words).encode().decode()
