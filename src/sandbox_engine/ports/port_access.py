from sandbox_engine.envd.protocol.access import is_token
from sandbox_engine.http.error_pages import ErrorPage, traffic_token_invalid, traffic_token_missing
from sandbox_engine.ports.headers import TRAFFIC_TOKEN
from sandbox_engine.records.sandbox import SandboxRecord
from sandbox_http.headers import Headers, find_header

_PORT = "${PORT}"


def find_rejection(record: SandboxRecord, headers: Headers) -> ErrorPage | None:
    """Return the error page for a request that may not reach a port of the sandbox."""
    if record.traffic_token is None:
        return None
    token = find_header(headers, TRAFFIC_TOKEN)
    if not token:
        return traffic_token_missing(record.id)
    if not is_token(record.traffic_token, token.decode("latin-1")):
        return traffic_token_invalid(record.id)
    return None


def forwarded_host(record: SandboxRecord, port: int) -> str | None:
    """Return the Host header to forward, if it is masked."""
    mask = record.network.mask_request_host
    return mask.replace(_PORT, str(port)) if mask else None
