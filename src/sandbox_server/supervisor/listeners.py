import errno
import socket

from sandbox_server.supervisor.errors import CannotServe

_BACKLOG = 2048

# Detect vanished peers after two minutes.
_PROBE_AFTER_S, _PROBE_EVERY_S, _PROBES = 60, 15, 4


def listen(host: str, port: int) -> list[socket.socket]:
    """Listen on every address of `host` that this machine has; port 0 selects a free one."""
    listeners: list[socket.socket] = []
    for family, address in _addresses(host, port):
        try:
            listener = socket.create_server((address, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            _explain(error, host=host, port=port)
            continue
        # Streams are many small writes. uvloop sets TCP_NODELAY per connection, asyncio not for these sockets.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _probe_silent_peers(listener)
        listeners.append(listener)
        port = listener.getsockname()[1]
    if not listeners:
        raise CannotServe(f"{host} is not an address of this machine. Choose another --host.")
    return listeners


def url_of(host: str, listeners: list[socket.socket]) -> str:
    """Return a URL at which this machine reaches the listeners."""
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{shown}:{listeners[0].getsockname()[1]}"


def _addresses(host: str, port: int) -> list[tuple[socket.AddressFamily, str]]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except socket.gaierror as error:
        raise CannotServe(f"Cannot resolve --host {host}: {error.strerror}.") from None
    return [(family, str(address[0])) for family, _, _, _, address in found]


def _explain(error: OSError, *, host: str, port: int) -> None:
    if error.errno == errno.EADDRINUSE:
        raise CannotServe(f"Port {port} of {host} is in use. Choose another --port.") from None
    if error.errno == errno.EACCES:
        raise CannotServe(f"Port {port} needs root. Choose a --port above 1023.") from None
    if error.errno not in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT):
        raise error


def _probe_silent_peers(listener: socket.socket) -> None:
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # accepted sockets inherit it
    if hasattr(socket, "TCP_KEEPIDLE"):  # not on macOS
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _PROBE_AFTER_S)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _PROBE_EVERY_S)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, _PROBES)
