from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from sandbox_client.errors import StreamBroken, Unauthenticated

_NOT_READ = 4408
_REFUSED = 4401
_ATTACH_AGAIN = frozenset(
    {
        CloseCode.GOING_AWAY,
        CloseCode.ABNORMAL_CLOSURE,
        CloseCode.INTERNAL_ERROR,
        CloseCode.SERVICE_RESTART,
        _NOT_READ,
    }
)


def should_reattach(closed: ConnectionClosed) -> bool:
    """Tell whether a terminal that is left is to be attached to again; raises where it would be no use."""
    code = CloseCode.ABNORMAL_CLOSURE if closed.rcvd is None else closed.rcvd.code
    if closed.sent is not None and closed.sent.code == CloseCode.NORMAL_CLOSURE:
        return False
    if code == CloseCode.NORMAL_CLOSURE:
        return False
    if code == _REFUSED:
        raise Unauthenticated("The key does not hold any more.")
    if code not in _ATTACH_AGAIN:
        raise StreamBroken(f"The terminal's connection was ended: {closed}.")
    return True
