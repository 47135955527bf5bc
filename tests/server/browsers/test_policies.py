import json

import pytest

from sandbox_server.browsers.policies import find_download

GUID = "0b6ccd66-9a1b-4a0e-9a2d-6f6a7f5d0b11"


def event(method="Browser.downloadWillBegin", **params):
    return json.dumps({"method": method, "params": params}).encode()


def test_find_download__its_guid_and_its_name():
    message = event(guid=GUID, suggestedFilename="a b.txt", url="http://x")
    assert find_download(message) == (GUID, "a b.txt")


@pytest.mark.parametrize(
    "message",
    [
        b"downloadWillBegin",
        b"[]",
        b"[" * 100_000,
        event(guid="../x", suggestedFilename="a"),
        event(guid=GUID),
        event(method="Runtime.consoleAPICalled", guid=GUID, suggestedFilename="a"),
    ],
)
def test_find_download__other_messages_name_none(message):
    assert find_download(message) is None
