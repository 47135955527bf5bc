"""Runs inside the environment of one version of E2B's SDK; knows nothing of this project."""

import inspect
import json
import re
import sys
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

# envd's answer to a request without the sandbox's token, which some methods of old SDKs omit.
NO_TOKEN = re.compile("unauthorized access, please provide a valid access token")
NOT_IMPLEMENTED = re.compile(r"\b501: .+ is not implemented by this engine", re.DOTALL)


@dataclass
class Kit:
    """One variant of the SDK, blocking or asynchronous, with fixtures of the probes."""

    e2b: ModuleType
    is_async: bool
    made: list[Any] = field(default_factory=list)
    _shared: Any = None

    def __getattr__(self, name: str) -> Any:
        """Return a class of the SDK in this variant."""
        prefix = "Async" if self.is_async else ""
        return getattr(self.e2b, prefix + name)

    async def __call__(self, function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """Call a method of either variant."""
        result = function(*arguments, **named)
        return await result if inspect.isawaitable(result) else result

    async def sandbox(self, *arguments: Any, **options: Any) -> Any:
        """Create a sandbox that is killed after the probe."""
        create = getattr(self.Sandbox, "create", self.Sandbox)  # 1.x blocks in its constructor
        sandbox = await self(create, *arguments, timeout=300, **options)
        self.made.append(sandbox)
        return sandbox

    async def shared(self) -> Any:
        """Return the shared sandbox, for probes without side effects."""
        if self._shared is None:
            create = getattr(self.Sandbox, "create", self.Sandbox)
            self._shared = await self(create, timeout=900)
        return self._shared

    async def clean(self) -> None:
        """Kill the sandboxes of the last probe."""
        while self.made:
            with suppress(Exception):
                await self(self.made.pop().kill)

    async def close(self) -> None:
        if self._shared is not None:
            await self(self._shared.kill)


class Unreachable(Exception):
    """The engine understood the request and reported that an image or a program is missing."""


class SdkRefusal(Exception):
    """The SDK refused the call itself; the engine received no request."""


@contextmanager
def expected_refusal(kit: Kit, reason: str, finding: type[Exception]) -> Iterator[None]:
    """Turn a BuildException whose text matches `reason` into the finding; others are reraised."""
    try:
        yield
    except kit.e2b.BuildException as error:
        if re.search(reason, str(error), re.DOTALL) is None:
            raise
        raise finding(str(error)) from error


_SDK_PACKAGES = ("e2b", "e2b_connect")

Probe = Callable[[Kit], Awaitable[None]]

PROBES: dict[str, Probe] = {}


def probe(*methods: str) -> Callable[[Probe], Probe]:
    """Register the function as the probe of these methods: `Class.method`."""

    def register(function: Probe) -> Probe:
        for method in methods:
            assert method not in PROBES, method
            PROBES[method] = function
        return function

    return register


async def run_all(kit: Kit, public: set[str]) -> None:
    """Run the probe of every public method and print the results."""
    known: dict[Probe, tuple[str, str]] = {}
    for method in sorted(public):
        function = PROBES.get(method)
        if function is None:
            _print(method, "no probe", "")
            continue
        if function not in known:
            known[function] = await _run(kit, function)
        _print(method, *known[function])
    await kit.close()


async def _run(kit: Kit, function: Probe) -> tuple[str, str]:
    try:
        await function(kit)
    except Exception as error:  # noqa: BLE001 - whatever goes wrong is the finding
        return verdict_of(error)
    finally:
        await kit.clean()
    return "works", ""


def verdict_of(error: Exception) -> tuple[str, str]:
    """Classify the exception of a probe: everything but an expected refusal is a failure."""
    text = str(error)
    if isinstance(error, Unreachable):
        return "unreachable", text
    if isinstance(error, SdkRefusal):
        return "refused by the SDK", text
    is_of_the_sdk = type(error).__module__.partition(".")[0] in _SDK_PACKAGES
    if is_of_the_sdk and NOT_IMPLEMENTED.search(text):
        return "not implemented", text
    if is_of_the_sdk and NO_TOKEN.search(text):
        return "without token", text
    return "fails", "".join(traceback.format_exception(error, limit=-3))


def _print(method: str, verdict: str, detail: str) -> None:
    finding = {"method": method, "verdict": verdict, "detail": detail}
    sys.stdout.write(json.dumps(finding) + "\n")
    sys.stdout.flush()
