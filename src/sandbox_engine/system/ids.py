import secrets
import time

_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyz"
_TIME_DIGITS = 9
_RANDOM_DIGITS = 11


def new_id() -> str:
    """Return twenty characters of [a-z0-9] that sort by time and are valid in host names."""
    milliseconds = time.time_ns() // 1_000_000
    return _digits(milliseconds, _TIME_DIGITS) + "".join(
        secrets.choice(_ALPHABET) for _ in range(_RANDOM_DIGITS)
    )


def _digits(number: int, count: int) -> str:
    digits = ""
    for _ in range(count):
        number, rest = divmod(number, len(_ALPHABET))
        digits = _ALPHABET[rest] + digits
    return digits
