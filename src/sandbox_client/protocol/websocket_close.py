from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from sandbox_client.errors import StreamBroken, Unauthenticated

_SLOW_CONSUMER = 4408
_REFUSED = 4401
_ATTACH_AGAIN = frozenset(
    {
        CloseCode.GOING_AWAY,
        CloseCode.ABNORMAL_CLOSURE,
        CloseCode.INTERNAL_ERROR,
        CloseCode.SERVICE_RESTART,
        _SLOW_CONSUMER,
    }
)


def should_reattach(closed: ConnectionClosed) -> bool:
    """Whether to reconnect after a close; raise if it would be useless."""
    code = CloseCode.ABNORMAL_CLOSURE if closed.rcvd is None else closed.rcvd.code
    if closed.sent is not None and closed.sent.code == CloseCode.NORMAL_CLOSURE:
        return False
    if code == CloseCode.NORMAL_CLOSURE:
        return False
    if code == _REFUSED:
        raise Unauthenticated("The API key is no longer valid.")
    if code not in _ATTACH_AGAIN:
        raise StreamBroken(f"The terminal connection was closed: {closed}.")
    return True
