import asyncio
import json

import pytest

from sandbox_tools.agent_server.event_encoding import MAX_EVENT, encode_event
from sandbox_tools.agent_server.transcript import Transcript


async def take(events, count):
    async with asyncio.timeout(10):
        return [json.loads(await anext(events)) for _ in range(count)]


async def test_transcript__followers_receive_missed_and_new_events():
    transcript = Transcript()
    first = transcript.last
    for number in range(3):
        transcript.append({"number": number})
    events = transcript.follow(first + 1)
    assert [event["number"] for event in await take(events, 2)] == [1, 2]
    coming = asyncio.create_task(take(events, 1))
    await asyncio.sleep(0)
    transcript.append({"number": 3})
    assert [event["number"] for event in await coming] == [3]


async def test_transcript__slow_followers_get_a_gap_event():
    transcript = Transcript(max_bytes=1000)
    first = transcript.last
    events = transcript.follow()
    transcript.append({"number": 0})
    await take(events, 1)
    for number in range(1, 100):
        transcript.append({"number": number})
    gap, next_event = await take(events, 2)
    assert (gap["type"], gap["after"]) == ("gap", first + 1)
    assert next_event["seq"] == gap["until"] + 1
    assert 50 < next_event["number"] < 99


async def test_transcript__numbers_of_an_earlier_server_lead_to_a_gap_event():
    transcript = Transcript()
    transcript.append({"number": 0})
    before = transcript.last - 1_000_000
    gap, event = await take(transcript.follow(before), 2)
    assert (gap["type"], gap["after"], gap["until"]) == ("gap", before, event["seq"] - 1)


@pytest.mark.parametrize(
    "event",
    [
        {"text": "x" * 1_000_000},
        {"text": "\u4e00" * 200_000},
        {"texts": ["x" * 10_000] * 1_000},
        {"deep": {"er": {"x" * 500_000: "y"}}},
        {"numbers": list(range(200_000))},
    ],
)
def test_event_encoding__truncates_events_to_the_maximum_size(event):
    encoded = encode_event({"seq": 1, "type": "message", "message": event})
    assert len(encoded) <= MAX_EVENT
    assert json.loads(encoded)["seq"] == 1
    assert b"truncated" in encoded


def test_event_encoding__replaces_lone_surrogates():
    assert json.loads(encode_event({"text": "a\ud800b"})) == {"text": "a?b"}
