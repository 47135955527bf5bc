"""The endpoint as a program for the sandbox.

scan ROOT REQUEST ANSWER           REQUEST: {"rules", "known"}     ANSWER: {path: entry}
unreadable ROOT REQUEST ANSWER     REQUEST: {"rules"}              ANSWER: [path]
pack ROOT REQUEST PARCEL           REQUEST: [change]
apply ROOT PARCEL ANSWER           ANSWER: {"done": [change], "refused": {path: why}}
"""

import json
from dataclasses import asdict
from pathlib import Path

from sandbox_client.workspace.endpoint.applier import apply
from sandbox_client.workspace.endpoint.changeset import pack
from sandbox_client.workspace.endpoint.entries import Change, dump_entries, load_entries
from sandbox_client.workspace.endpoint.ignore import Rules
from sandbox_client.workspace.endpoint.scanner import find_unreadable, scan


def main(action: str, root: str, request_path: str, answer: str) -> None:
    if action == "scan":
        request = json.loads(Path(request_path).read_text())
        found = scan(root, Rules(request["rules"]), load_entries(request["known"]))
        Path(answer).write_text(json.dumps(dump_entries(found)))
    elif action == "unreadable":
        request = json.loads(Path(request_path).read_text())
        Path(answer).write_text(json.dumps(find_unreadable(root, Rules(request["rules"]))))
    elif action == "pack":
        changes = [Change.read(fields) for fields in json.loads(Path(request_path).read_text())]
        with Path(answer).open("wb") as changeset_file:
            pack(root, changes, changeset_file)
    else:
        with Path(request_path).open("rb") as changeset_file:
            outcome = apply(root, changeset_file)
        Path(answer).write_text(json.dumps(asdict(outcome)))
