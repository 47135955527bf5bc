import asyncio
import json

import pytest

pytestmark = pytest.mark.needs_engine


async def read_stream(api, path, *, after=None, until):
    """Read a stream until an event of this type; gives the events with their ids."""
    headers = {"Accept": "text/event-stream"}
    if after is not None:
        headers["Last-Event-ID"] = str(after)
    found = []
    async with asyncio.timeout(60), api.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200
        async for line in answer.aiter_lines():
            if line.startswith("data: "):
                found.append(json.loads(line.removeprefix("data: ")))
                if until(found[-1]):
                    return found
    return found


async def test_log__has_events_of_the_task_and_output_of_its_runs_under_one_numbering(tasks):
    await tasks.add_repository(checks="echo checked")
    task = await tasks.create("echo worked; echo two >> README.md")
    path = f"/v1/tasks/{task['id']}/log"
    items = await read_stream(
        tasks.api, path, until=lambda item: item.get("data", {}).get("stage") == "in-review"
    )
    numbers = [item["seq"] for item in items]
    assert numbers == sorted(set(numbers))
    text = "".join(item.get("text") or "" for item in items)
    assert "worked" in text
    assert "checked" in text
    stages = [item["data"]["stage"] for item in items if item["type"] == "task.stage"]
    assert stages == ["preparing", "working", "checking", "publishing", "in-review"]
    kinds = {item["type"] for item in items}
    assert {"task.created", "task.checkout", "task.run", "task.save", "task.pushed"} <= kinds
    assert {"task.pull", "sandbox.running", "stdout", "exit"} <= kinds


async def test_log__is_resumed_after_the_last_event_and_ends_with_the_task(tasks):
    await tasks.add_repository()
    task = await tasks.create("echo worked; echo two >> README.md", pull_request="none")
    path = f"/v1/tasks/{task['id']}/log"
    first = await read_stream(tasks.api, path, until=lambda item: item["type"] == "task.run")
    rest = await read_stream(tasks.api, path, after=first[-1]["seq"], until=lambda _: False)
    assert rest[-1]["type"] == "task.ended"
    listed = []
    cursor = None
    while True:
        page = await tasks.get(path, limit=7, **({} if cursor is None else {"cursor": cursor}))
        listed += page["items"]
        if (cursor := page["next_cursor"]) is None:
            break
    assert [item["seq"] for item in listed] == [item["seq"] for item in [*first, *rest]]
    over = await tasks.api.get(
        path, headers={"Accept": "text/event-stream", "Last-Event-ID": str(listed[-1]["seq"])}
    )
    assert over.status_code == 204
