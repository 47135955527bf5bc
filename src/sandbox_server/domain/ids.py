"""Identifiers: 20 characters of [a-z0-9] that sort by creation time.

    0mb2k8w1x4q | 7zk20fq3a
    microseconds  random       both in base 36

The random part (46 bits) distinguishes ids that processes create in the same microsecond. An id is a valid label of a
host name and a valid idempotency key of E2B.
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
SandboxId = NewType("SandboxId", str)
InstallationId = NewType("InstallationId", str)

PATTERN = r"^[a-z0-9]{20}\Z"

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_TIME_LENGTH = 11  # 36**11 microseconds last until the year 6142
_RANDOM_LENGTH = 9


class IdSource:
    """Generates strictly increasing ids, even if the clock stands still or is set back."""

    def __init__(self, *, clock_ns: Callable[[], int] = time.time_ns) -> None:
        self._clock_ns = clock_ns
        self._last = 0
        self._lock = threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            self._last = max(self._clock_ns() // 1000, self._last + 1)
            instant = self._last
        random_part = secrets.randbelow(len(_DIGITS) ** _RANDOM_LENGTH)
        return _in_base_36(instant, _TIME_LENGTH) + _in_base_36(random_part, _RANDOM_LENGTH)


new_id = IdSource()


def is_id(text: str) -> bool:
    """Whether servers generate such ids: until the year 2085 they start with a zero."""
    return text.startswith("0") and re.match(PATTERN, text) is not None


def _in_base_36(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, len(_DIGITS))
        digits.append(_DIGITS[digit])
    return "".join(reversed(digits))
