import json

import pytest

from sandbox_server.browsers.cdp.rules import Answer, CloseRequest, Forward, decide

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
    "message", [b"", b"Browser.close", b"[" * 100_000 + b"Browser.close", b'["Browser.close"]']
)
def test_rules__text_that_is_no_command_is_left_to_the_browser(message):
    assert decide(message, downloads=DOWNLOADS) == Forward()


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
