"""What a reader sees of the events that agents write."""

import json

import pytest

from sandbox_client.cli.tasks.agent_messages import AgentLines, summarize


def shown(event):
    return list(summarize(json.dumps(event)))


@pytest.mark.parametrize(
    ("message", "lines"),
    [
        (
            {
                "type": "assistant",
                "content": [
                    {"type": "text", "text": "I look.\n\nThen I act."},
                    {"type": "tool_use", "name": "Bash", "input": {"command": "ls"}},
                ],
            },
            ["I look.", "Then I act.", "→ Bash: ls"],
        ),
        ({"type": "item.completed", "item": {"type": "agent_message", "text": "Done."}}, ["Done."]),
        (
            {"type": "item.completed", "item": {"type": "command_execution", "command": "ls"}},
            ["→ command_execution: ls"],
        ),
        (
            {"type": "tool_use", "tool_name": "read", "parameters": {"path": "x"}},
            ["→ read: x"],
        ),
        ({"type": "text", "part": {"text": "Hello."}}, ["Hello."]),
        ({"type": "assistant.message", "data": {"content": "Hi."}}, ["Hi."]),
        ({"type": "system"}, []),
        ("text", []),
    ],
)
def test_summarize__shows_texts_and_tool_calls(message, lines):
    assert shown({"type": "message", "message": message}) == lines


def test_summarize__shows_the_result_and_what_is_no_event():
    assert shown({"type": "result", "state": "succeeded", "output": "All is done."}) == [
        "[succeeded] All is done."
    ]
    assert list(summarize("npm WARN deprecated")) == ["npm WARN deprecated"]
    assert next(iter(summarize("[" * 100_000))).startswith("[[[")
    [cut] = shown({"type": "message", "message": {"type": "text", "part": {"text": "x" * 5000}}})
    assert len(cut) < 500


def test_agent_lines__joins_pieces():
    line = json.dumps({"type": "message", "message": {"type": "text", "part": {"text": "Hello."}}})
    agent = AgentLines()
    assert list(agent.feed(line[:20])) == []
    assert list(agent.feed(f"{line[20:]}\n{line}\n")) == ["Hello.", "Hello."]
