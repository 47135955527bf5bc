"""Sandboxes that exist only in the memory of a stub provider."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

DEFAULT_SECONDS = 300


@dataclass
class StubSandbox:
    id: str
    template: str
    metadata: Mapping[str, str]
    auto_pause: bool
    ends_at: float
    paused: bool = False
    started_at: float = field(default_factory=time.time)

    def extend(self, seconds: float) -> None:
        self.ends_at = max(self.ends_at, time.time() + seconds)

    def wire(self) -> dict[str, Any]:
        """Return E2B's representation of a sandbox."""
        return {
            **self.access(),
            "state": "paused" if self.paused else "running",
            "metadata": self.metadata,
            "startedAt": _instant(self.started_at),
            "endAt": _instant(self.ends_at),
            "cpuCount": 2,
            "memoryMB": 512,
            "diskSizeMB": 1024,
        }

    def access(self) -> dict[str, Any]:
        return {
            "templateID": self.template,
            "sandboxID": self.id,
            "clientID": "stub",
            "envdVersion": "0.2.0",
            "envdAccessToken": f"token-of-{self.id}",
        }


class StubSandboxes:
    """All sandboxes in the order of creation; timeouts are applied on access."""

    def __init__(self) -> None:
        self._sandboxes: dict[str, StubSandbox] = {}
        self._by_key: dict[str, StubSandbox] = {}
        self.arrivals: dict[str, dict[str, float]] = {}

    def create(self, body: Mapping[str, Any], *, key: str | None) -> StubSandbox:
        if key is not None and key in self._by_key:
            return self._by_key[key]
        sandbox = StubSandbox(
            id=uuid4().hex[:20],
            template=body["templateID"],
            metadata=body.get("metadata") or {},
            auto_pause=bool(body.get("autoPause")),
            ends_at=time.time() + body.get("timeout", DEFAULT_SECONDS),
        )
        self._sandboxes[sandbox.id] = sandbox
        if key is not None:
            self._by_key[key] = sandbox
        return sandbox

    def find(self, sandbox_id: str) -> StubSandbox | None:
        sandbox = self._sandboxes.get(sandbox_id)
        return sandbox if sandbox is not None and self._lives(sandbox) else None

    def list_all(self, *, labels: Mapping[str, str], states: frozenset[str]) -> list[StubSandbox]:
        """List newest first."""
        return [
            one
            for one in reversed(list(self._sandboxes.values()))
            if labels.items() <= one.metadata.items()
            and self._lives(one)
            and ("paused" if one.paused else "running") in states
        ]

    def remove(self, sandbox: StubSandbox) -> None:
        self._sandboxes.pop(sandbox.id, None)

    def note(self, act: str, sandbox_id: str) -> None:
        """Record when a sandbox first got this call."""
        self.arrivals.setdefault(act, {}).setdefault(sandbox_id, time.time())

    def _lives(self, sandbox: StubSandbox) -> bool:
        if not sandbox.paused and sandbox.ends_at < time.time():
            sandbox.paused = sandbox.auto_pause
            if not sandbox.auto_pause:
                self.remove(sandbox)
                return False
        return True


def _instant(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
