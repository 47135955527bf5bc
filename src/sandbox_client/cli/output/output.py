"""What is printed: results on stdout, for people or as JSON; what is only said meanwhile on stderr."""

import json
import os
import sys
from collections.abc import AsyncIterable, Sequence

from pydantic import BaseModel

from sandbox_client.cli.output.failures import Told
from sandbox_client.cli.output.tables import table
from sandbox_client.console.escape import visible

_COLOURS = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "magenta": 35, "cyan": 36, "dim": 2}
_OF_STATES = {
    "running": "green",
    "failed": "red",
    "stopped": "dim",
    "paused": "blue",
}
_LONGEST_CELL = 40


class Output:
    def __init__(self, *, as_json: bool, quiet: bool, colours: bool) -> None:
        self.as_json = as_json
        self.is_quiet = quiet
        self._colours = colours and os.isatty(1) and not os.environ.get("NO_COLOR")

    def say(self, line: str) -> None:
        """Print a line of the result."""
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def show(self, model: BaseModel) -> None:
        """Print an object as the API has it."""
        self.say(as_json(model))

    def show_fields(self, model: BaseModel, **more: object) -> None:
        """Print an object with what the client leaves out of it."""
        self.say(json.dumps({**more, **json.loads(as_json(model))}))

    def show_or_say(self, model: BaseModel, text: str) -> None:
        """Print an object to programs, and of it to people what they want to know."""
        if self.as_json:
            self.show(model)
        else:
            self.say(text)

    async def show_all(self, models: AsyncIterable[BaseModel]) -> None:
        """Print objects as one array."""
        separator = "["
        async for model in models:
            sys.stdout.write(f"{separator}\n{as_json(model)}")
            separator = ","
        self.say("[]" if separator == "[" else "\n]")

    def show_table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        longest = _LONGEST_CELL if os.isatty(1) else None
        for line in table(heads, rows, longest=longest, paint=self.paint_state):
            self.say(line)

    def note(self, text: str) -> None:
        """Tell a person something beside the result."""
        if not (self.is_quiet or self.as_json):
            sys.stderr.write(f"{visible(text)}\n")
            sys.stderr.flush()

    def fail(self, told: Told) -> None:
        if self.as_json:
            sys.stderr.write(f"{told.json}\n")
            return
        for mark, text in (("sbx:", told.sentence), ("    ", told.advice)):
            if text:
                sys.stderr.write(f"{mark} {visible(text)}\n")

    def paint(self, text: str, colour: str) -> str:
        return f"\033[{_COLOURS[colour]}m{text}\033[0m" if self._colours and text else text

    def paint_state(self, padded: str, state: str) -> str:
        colour = _OF_STATES.get(state.partition(" ")[0])
        return padded if colour is None else self.paint(padded, colour)


def as_json(model: BaseModel) -> str:
    """Give an object as it was answered, with no field that was not there."""
    return model.model_dump_json(exclude_unset=True, by_alias=True)
