"""The code interpreter of a sandbox, as its clients reach it."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Self

import httpx

from tests.template.computer import Computer

PORT = 49999


class Interpreter:
    """The interpreter of one sandbox."""

    def __init__(self, computer: Computer) -> None:
        self.computer = computer
        self._client = httpx.Client(
            base_url=computer.options["sandbox_url"],
            headers={"Host": computer.host(PORT)},
            timeout=120,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def run(self, code: str, **options: object) -> list[dict[str, Any]]:
        answer = self._client.post("/execute", json={"code": code, **options})
        assert answer.status_code == 200, answer.text
        return [json.loads(line) for line in answer.content.splitlines()]

    def result(self, code: str, **options: object) -> str:
        lines = self.run(code, **options)
        assert not self.of("error", lines), lines
        return "".join(line["text"] for line in lines if line["type"] in ("result", "stdout"))

    def of(self, kind: str, lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
        return [line for line in lines if line["type"] == kind]

    def leave(self, code: str, **options: object) -> None:
        """Run code and close the connection once it has begun."""
        with self.streaming(code, **options) as lines:
            assert next(lines)

    def wait(self) -> None:
        for _ in range(120):
            try:
                if self.result("1 + 1") == "2":
                    return
            except (AssertionError, httpx.HTTPError, json.JSONDecodeError):
                time.sleep(0.25)
        raise AssertionError("the interpreter has not recovered")

    @contextmanager
    def streaming(self, code: str, **options: object) -> Iterator[Iterator[str]]:
        """Run code; the client leaves at the end of the block."""
        with self._client.stream("POST", "/execute", json={"code": code, **options}) as answer:
            yield answer.iter_lines()

    def processes(self) -> int:
        """Count the sandbox's processes."""
        return int(self.computer.run("ls -d /proc/[0-9]* | wc -l", user="root"))
