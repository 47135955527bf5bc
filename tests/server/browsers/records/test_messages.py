import json

import pytest

from sandbox_server.browsers.cdp.policy import Direction
from sandbox_server.browsers.records.messages import (
    LONGEST_BODY,
    CommandLog,
    MessageBuffer,
    pack_messages,
    unpack_messages,
)

SESSION = "01900000-0000-7000-8000-000000000000"
ATTACHED = {
    "method": "Target.attachedToTarget",
    "params": {"sessionId": "S1", "targetInfo": {"targetId": "T1", "type": "page"}},
}


@pytest.fixture
def read():
    def read(*messages, pages=None):
        buffer = MessageBuffer()
        for at_ms, (direction, message, *target) in enumerate(messages):
            payload = message if isinstance(message, bytes) else json.dumps(message).encode()
            buffer.add(
                payload,
                at_ms=at_ms,
                connection="c",
                direction=direction,
                target_id=target[0] if target else None,
            )
        packed = pack_messages(buffer.take())
        return CommandLog(SESSION, pages or {}).read(unpack_messages(packed))

    return read


def client(message, *target):
    return Direction.CLIENT, message, *target


def browser(message, *target):
    return Direction.BROWSER, message, *target


def test_log__pairs_commands_with_their_responses(read):
    command = {"id": 7, "method": "Page.navigate", "params": {"url": "x"}, "sessionId": "S1"}
    answer = {"id": 7, "result": {"frameId": "F"}, "sessionId": "S1"}
    other = {"id": 7, "method": "Browser.getVersion"}
    attached, sent, version = read(
        browser(ATTACHED), client(command), client(other), browser(answer), pages={"T0": 0, "T1": 1}
    )
    assert attached["method"] == "Target.attachedToTarget"
    assert (sent["method"], sent["pageId"], sent["sessionId"]) == ("Page.navigate", 1, SESSION)
    assert sent["request"] == {
        "params": {"url": "x"},
        "rawBody": json.dumps(command),
        "timestamp": 1,
    }
    assert sent["response"] == {
        "result": {"frameId": "F"},
        "rawBody": json.dumps(answer),
        "timestamp": 3,
    }
    assert "response" not in version


def test_log__events_name_their_frame(read):
    event = {"method": "Page.frameStartedLoading", "params": {"frameId": "F", "loaderId": "L"}}
    [entry] = read(browser(event, "T9"))
    assert (entry["frameId"], entry["loaderId"], entry["pageId"]) == ("F", "L", 0)


def test_log__long_messages_are_shortened_and_still_paired(read):
    command = {"id": 3, "method": "Page.captureScreenshot", "params": {}, "sessionId": "S1"}
    picture = {"id": 3, "result": {"data": "x" * 100_000}, "sessionId": "S1"}
    _, shot = read(browser(ATTACHED), client(command), browser(picture))
    assert len(shot["response"]["rawBody"]) == LONGEST_BODY
    assert shot["response"]["result"] == {}


@pytest.mark.parametrize(
    "message", [b"\xff\xfe", b"[]", b"{}", b"null", b"[" * 100_000, b'{"id": "a", "method": 1}']
)
def test_log__nonsense_is_left_out(read, message):
    assert read(client(message), browser(message)) == []


def test_buffer__is_bounded_while_the_database_is_away():
    buffer = MessageBuffer()
    for _ in range(2000):
        buffer.add(b"x" * 8000, at_ms=1, connection="c", direction=Direction.CLIENT, target_id=None)
    assert sum(len(each.text) for each in buffer.take()) < 9 * 2**20
