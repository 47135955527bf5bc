"""Prints results to stdout, as text or JSON, and notes to stderr."""

import json
import os
import sys
from collections.abc import AsyncIterable, Sequence

from pydantic import BaseModel

from sandbox_client.cli.output.failures import ErrorReport
from sandbox_client.cli.output.tables import table
from sandbox_client.console.escape import escape_controls

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

    def print(self, line: str) -> None:
        """Print a line of the result."""
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()

    def print_model(self, model: BaseModel) -> None:
        """Print a model as the API returns it."""
        self.print(as_json(model))

    def print_model_with(self, model: BaseModel, **more: object) -> None:
        """Print a model with additional fields."""
        self.print(json.dumps({**more, **json.loads(as_json(model))}))

    def print_model_or(self, model: BaseModel, text: str) -> None:
        """Print the model with --json, else the text."""
        if self.as_json:
            self.print_model(model)
        else:
            self.print(text)

    async def print_models(self, models: AsyncIterable[BaseModel]) -> None:
        """Print models as one JSON array."""
        separator = "["
        async for model in models:
            sys.stdout.write(f"{separator}\n{as_json(model)}")
            separator = ","
        self.print("[]" if separator == "[" else "\n]")

    def print_table(self, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        longest = _LONGEST_CELL if os.isatty(1) else None
        for line in table(heads, rows, longest=longest, paint=self.paint_state):
            self.print(line)

    def note(self, text: str) -> None:
        """Print a message to stderr, unless quiet or JSON."""
        if not (self.is_quiet or self.as_json):
            sys.stderr.write(f"{escape_controls(text)}\n")
            sys.stderr.flush()

    def print_error(self, report: ErrorReport) -> None:
        if self.as_json:
            sys.stderr.write(f"{report.json}\n")
            return
        for mark, text in (("sbx:", report.sentence), ("    ", report.advice)):
            if text:
                sys.stderr.write(f"{mark} {escape_controls(text)}\n")

    def paint(self, text: str, colour: str) -> str:
        return f"\033[{_COLOURS[colour]}m{text}\033[0m" if self._colours and text else text

    def paint_state(self, padded: str, state: str) -> str:
        colour = _OF_STATES.get(state.partition(" ")[0])
        return padded if colour is None else self.paint(padded, colour)


def as_json(model: BaseModel) -> str:
    """Serialize a model as received, without fields that were absent."""
    return model.model_dump_json(exclude_unset=True, by_alias=True)
