import json
import re

import pytest

from sandbox_server.browsers.cdp.rules import (
    Answer,
    CloseRequest,
    Forward,
    decide,
    may_concern_rules,
)

DOWNLOADS = "/home/user/downloads/s1"


def decided(**command):
    return decide(json.dumps(command).encode(), downloads=DOWNLOADS)


@pytest.mark.parametrize(
    "command",
    [
        {"id": 1, "method": "Page.navigate", "params": {"url": "https://a.example/Browser.close"}},
        {"id": 1, "method": "Browser.getVersion"},
        {"id": 1, "method": "Browser.closed"},
        {"id": 1, "method": "Browser.setDownloadBehavior", "params": {"behavior": "deny"}},
        {"id": 1, "method": "Browser.setDownloadBehavior", "params": []},
        {"method": 7},
    ],
)
def test_rules__other_commands_are_forwarded_unchanged(command):
    assert decided(**command) == Forward()


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"Page.enable",
        b'["Browser.close"]',
        b'"Browser.close"',
        b'{"method":["Browser.close"]}',
    ],
)
def test_rules__text_that_is_no_command_is_left_to_the_browser(message):
    assert decide(message, downloads=DOWNLOADS) == Forward()


@pytest.mark.parametrize(
    "message",
    [
        b"Browser.close",
        b"[" * 100_000 + b"Browser.close",
        b'{"id":1,/**/"method":"Browser.close"}',
        rb'{"id":1,"method":"\x42rowser.close"}',
        b'{"id":1,"method":"Browser.close\xff"}',
    ],
)
def test_rules__text_that_only_the_browser_may_understand_is_refused(message):
    decision = decide(message, downloads=DOWNLOADS)
    assert isinstance(decision, Answer)
    assert json.loads(decision.message)["error"]["code"] == -32700


def escaped(text, *characters):
    return "".join(f"\\u{ord(c):04x}" if not characters or c in characters else c for c in text)


@pytest.mark.parametrize("name", ["method", escaped("method"), escaped("method", "m")])
@pytest.mark.parametrize("characters", ["B", "c", "Browser.close", "rowser.close", "."])
def test_rules__escapes_do_not_hide_a_command(name, characters):
    method = escaped("Browser.close", *characters)
    message = f'{{"id":1,"{name}":"{method}"}}'
    assert isinstance(decide(message.encode(), downloads=DOWNLOADS), CloseRequest)
    upper = re.sub("u00..", lambda found: "u" + found[0][1:].upper(), message)
    assert isinstance(decide(upper.encode(), downloads=DOWNLOADS), CloseRequest)


def test_rules__escapes_in_scripts_do_not_concern_the_rules():
    script = r"/[\u0000-\u001f\u0041]/.test('\x42')"
    assert not may_concern_rules(json.dumps({"expression": script}).encode())


@pytest.mark.parametrize("last", ["Page.enable", "Browser.close"])
def test_rules__a_command_with_two_methods_is_refused_if_one_of_them_is(last):
    first = "Browser.close" if last == "Page.enable" else "Page.enable"
    message = f'{{"id":3,"method":"{first}","method":"{last}"}}'.encode()
    decision = decide(message, downloads=DOWNLOADS)
    assert isinstance(decision, Answer)
    assert json.loads(decision.message)["id"] == 3


@pytest.mark.parametrize(
    "method",
    ["Browser.close", "Browser.crash", "Browser.setDownloadBehavior", escaped("Browser.crash")],
)
def test_rules__a_nested_command_is_refused(method):
    nested = f'{{"id":1,"method":"{method}"}}'
    for message in (nested, nested.replace('{"id"', '{/**/"id"')):
        params = {"sessionId": "S", "message": message}
        decision = decided(id=1, method="Target.sendMessageToTarget", params=params)
        assert isinstance(decision, Answer)
        assert "error" in json.loads(decision.message)


def test_rules__other_nested_commands_are_forwarded():
    params = {"sessionId": "S", "message": '{"id":1,"method":"Runtime.enable"}'}
    assert decided(id=1, method="Target.sendMessageToTarget", params=params) == Forward()


@pytest.mark.parametrize("behavior", [[], {}, None, 3])
def test_rules__an_invalid_behavior_is_left_to_the_browser(behavior):
    params = {"behavior": behavior}
    assert decided(id=1, method="Browser.setDownloadBehavior", params=params) == Forward()


def test_rules__closing_the_browser_is_answered_and_disconnects():
    decision = decided(id=7, method="Browser.close")
    assert isinstance(decision, CloseRequest)
    assert json.loads(decision.message) == {"id": 7, "result": {}}


@pytest.mark.parametrize("method", ["Browser.crash", "Browser.crashGpuProcess"])
def test_rules__a_crash_is_refused_in_the_session_that_asked(method):
    decision = decided(id=7, method=method, sessionId="S")
    assert isinstance(decision, Answer)
    answer = json.loads(decision.message)
    assert (answer["id"], answer["sessionId"]) == (7, "S")
    assert answer["error"]["message"].startswith(f"{method} is refused")


@pytest.mark.parametrize("method", ["Browser.setDownloadBehavior", "Page.setDownloadBehavior"])
@pytest.mark.parametrize("behavior", ["allow", "allowAndName"])
def test_rules__downloads_go_to_the_directory_of_the_sandbox(method, behavior):
    params = {"behavior": behavior, "downloadPath": "C:\\mine", "eventsEnabled": True}
    decision = decided(id=1, method=method, params=params)
    assert isinstance(decision, Forward)
    assert decision.message is not None
    changed = json.loads(decision.message)
    assert changed["params"] == {**params, "downloadPath": DOWNLOADS}
    assert (changed["id"], changed["method"]) == (1, method)
