"""The header in which an engine names the sandbox that sent a request; the engine's API key signs it.

    Sandbox-Origin: {sandbox id};{Unix time};{HMAC-SHA256 of id, time, method and target}

Only the engine and its servers know the key. A request that was recorded is of no use for another target, nor later.
"""

import hmac

HEADER = b"sandbox-origin"

_VALID_SECONDS = 60


def sign_origin(api_key: str, sandbox_id: str, *, method: str, target: bytes, at: int) -> bytes:
    """Write the value of the header for one request."""
    signed = f"{sandbox_id};{at}".encode()
    return signed + b";" + _signature(api_key, signed, method, target).encode()


def verify_origin(
    api_key: str, value: bytes, *, method: str, target: bytes, now: float
) -> str | None:
    """Return the sandbox that the key's owner names; None if the header is forged, of another request, or old."""
    signed, _, signature = value.rpartition(b";")
    sandbox_id, _, at = signed.partition(b";")
    expected = _signature(api_key, signed, method, target).encode()
    if not hmac.compare_digest(signature, expected):
        return None
    is_fresh = abs(now - int(at)) <= _VALID_SECONDS
    return sandbox_id.decode("latin-1") if is_fresh else None


def _signature(api_key: str, signed: bytes, method: str, target: bytes) -> str:
    key = hmac.digest(api_key.encode(), b"sandbox origin", "sha256")
    return hmac.new(key, b"\n".join((signed, method.encode(), target)), "sha256").hexdigest()
