"""Identifiers: 20 characters of [a-z0-9] that sort by the time they were made.

    0mb2k8w1x4q | 7zk20fq3a
    microseconds  chance       both in base 36

The chance (46 bits) keeps processes apart that make an id in the same microsecond. Such an id is a valid label of a host
name and a valid idempotency key of E2B.
"""

import re
import secrets
import threading
import time
from collections.abc import Callable
from typing import NewType

TenantId = NewType("TenantId", str)
ApiKeyId = NewType("ApiKeyId", str)
LoginId = NewType("LoginId", str)
TemplateId = NewType("TemplateId", str)
SandboxId = NewType("SandboxId", str)
InstallationId = NewType("InstallationId", str)

PATTERN = r"^[a-z0-9]{20}\Z"

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_TIME_LENGTH = 11  # 36**11 microseconds last until the year 6142
_CHANCE_LENGTH = 9


class IdSource:
    """Makes ids that grow strictly, even when the clock stands still or is set back."""

    def __init__(self, *, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._clock_ns = clock_ns
        self._last = 0
        self._lock = threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            self._last = max(self._clock_ns() // 1000, self._last + 1)
            instant = self._last
        chance = secrets.randbelow(len(_DIGITS) ** _CHANCE_LENGTH)
        return _in_base_36(instant, _TIME_LENGTH) + _in_base_36(chance, _CHANCE_LENGTH)


new_id = IdSource()


def is_id(text: str) -> bool:
    """Tell whether servers make such ids: until the year 2085 their first digit is a zero."""
    return text.startswith("0") and re.match(PATTERN, text) is not None


def _in_base_36(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
