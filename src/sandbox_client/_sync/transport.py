import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import httpx
from pydantic import BaseModel

from sandbox_client._sync.concurrency import sleep
from sandbox_client.errors import NotFound, SandboxError, Unreachable
from sandbox_client.errors.parsing import error_of
from sandbox_client.protocol.address import Address
from sandbox_client.protocol.calls import Call, read_as
from sandbox_client.protocol.deadline import Deadline
from sandbox_client.protocol.retries import Retries

Model = TypeVar("Model", bound=BaseModel)
Parts = Callable[[], Iterator[bytes]]

_CONNECT_S = 10.0
# Each stream has its own connection.
_LIMITS = httpx.Limits(max_connections=None, max_keepalive_connections=50)
_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


class Transport:
    """Sends requests, with retries where that is safe."""

    def __init__(
        self,
        address: Address,
        *,
        timeout: float,
        retry_for_s: float,
        tls: ssl.SSLContext | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        self.address = address
        self.tls = tls
        self.timeout = timeout
        self._retry_for_s = retry_for_s
        self._http = httpx.Client(
            base_url=address.url,
            headers=address.headers,
            verify=_trust(address) if tls is None else tls,
            limits=_LIMITS,
            transport=transport,
        )

    def close(self) -> None:
        self._http.close()

    def retries(self, call: Call, deadline: Deadline | None = None) -> Retries:
        return Retries(
            deadline or Deadline(self._retry_for_s),
            outage=Deadline(self._retry_for_s),
            may_repeat=call.may_repeat,
            may_wait=call.wait != 0,
        )

    def send(
        self,
        call: Call,
        *,
        parts: Parts | None = None,
        deadline: Deadline | None = None,
        retries: Retries | None = None,
    ) -> httpx.Response:
        """Return the complete response; raise for error responses."""
        retries = retries or self.retries(call, deadline)
        while True:
            try:
                with self.attempt(call, parts) as response:
                    response.read()
                    return response
            except SandboxError as error:
                pause = retries.delay_after(error)
            sleep(pause)

    def fetch(self, kind: type[Model], call: Call, *, deadline: Deadline | None = None) -> Model:
        response = self.send(call, deadline=deadline)
        return read_as(kind, response.content, status=response.status_code)

    def delete(self, call: Call) -> None:
        """Delete something. A 404 after a lost response means that it is deleted."""
        retries = self.retries(call)
        try:
            self.send(call, retries=retries)
        except NotFound:
            if not retries.was_lost:
                raise

    @contextmanager
    def attempt(self, call: Call, parts: Parts | None = None) -> Iterator[httpx.Response]:
        """Send a request once; yield the response before its body is read."""
        read_timeout = self.timeout if call.read_timeout is None else call.read_timeout
        request = self._http.build_request(
            call.method,
            call.path,
            params=call.query,
            headers=dict(call.headers),
            content=call.body if parts is None else parts(),
            timeout=httpx.Timeout(
                read_timeout,
                connect=min(read_timeout, _CONNECT_S),
                read=read_timeout + (call.wait or 0),
            ),
        )
        try:
            response = self._http.send(request, stream=True)
        except _NEVER_SENT as error:
            raise self._unreachable(error, was_sent=False) from error
        except httpx.TransportError as error:
            raise self._unreachable(error, was_sent=True) from error
        try:
            if not response.is_success and response.status_code != call.expected:
                raise error_of(response.status_code, response.headers, response.read())
            yield response
        except httpx.TransportError as error:
            raise self._unreachable(error, was_sent=True) from error
        finally:
            response.close()

    def _unreachable(self, error: httpx.TransportError, *, was_sent: bool) -> Unreachable:
        reason = str(error) or type(error).__name__
        return Unreachable(self.address.url, reason, was_sent=was_sent)


def _trust(address: Address) -> ssl.SSLContext | bool:
    """Load the CA certificates for https only: that takes 40 ms."""
    return True if address.url.startswith("https:") else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
