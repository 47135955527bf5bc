"""A side as a program, for the sandbox.

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
from sandbox_client.workspace.endpoint.entries import Change, read_entries, tell_entries
from sandbox_client.workspace.endpoint.ignore import Rules
from sandbox_client.workspace.endpoint.scanner import find_unreadable, scan


def main(act: str, root: str, given: str, answer: str) -> None:
    if act == "scan":
        request = json.loads(Path(given).read_text())
        found = scan(root, Rules(request["rules"]), read_entries(request["known"]))
        Path(answer).write_text(json.dumps(tell_entries(found)))
    elif act == "unreadable":
        request = json.loads(Path(given).read_text())
        Path(answer).write_text(json.dumps(find_unreadable(root, Rules(request["rules"]))))
    elif act == "pack":
        changes = [Change.read(told) for told in json.loads(Path(given).read_text())]
        with Path(answer).open("wb") as parcel:
            pack(root, changes, parcel)
    else:
        with Path(given).open("rb") as parcel:
            outcome = apply(root, parcel)
        Path(answer).write_text(json.dumps(asdict(outcome)))
