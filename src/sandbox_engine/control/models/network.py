"""Wire models of a sandbox's network."""

import re
from typing import Any

from pydantic import Field, StrictBool

from sandbox_engine.control.models.wire import WireModel
from sandbox_engine.records.sandbox import EgressRecord, NetworkRecord
from sandbox_engine.system.errors import InvalidRequest, NotImplementedHere

_LABEL = "[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
_HOST = re.compile(rf"({_LABEL}\.)*{_LABEL}(:[0-9]{{1,5}})?")
_LONGEST_HOST = 253


class _Egress(WireModel):
    allow_out: list[str] | None = None
    deny_out: list[str] | None = None
    dns_servers: list[str] | None = None
    egress_proxy: dict[str, Any] | None = None
    rules: dict[str, list[Any]] | None = None

    def reject_unsupported(self) -> None:
        """Reject unsupported options instead of ignoring them."""
        if self.egress_proxy:
            raise NotImplementedHere("Sending traffic through an egress proxy")
        if self.rules:
            raise NotImplementedHere("Transforming requests on their way out (network rules)")


class NetworkConfig(_Egress):
    """Network options of a new sandbox."""

    allow_public_traffic: StrictBool | None = None
    mask_request_host: str | None = None
    https_ports: list[int] | None = None

    def to_record(self, *, allow_internet: bool | None) -> NetworkRecord:
        """Convert to a record; rejects unsupported options."""
        self.reject_unsupported()
        if self.https_ports:
            raise NotImplementedHere("Reaching ports that serve HTTPS")
        mask = self.mask_request_host
        if mask and not _is_host(mask):
            raise InvalidRequest(f"mask request host is not valid: {mask}")
        record = NetworkRecord(**self.model_dump(include=set(NetworkRecord.model_fields)))
        record.policy(allow_internet=allow_internet)
        return record


class NetworkUpdate(_Egress):
    """A new egress policy; omitted fields are reset to their defaults."""

    allow_internet_access: StrictBool | None = Field(None, alias="allow_internet_access")

    def to_record(self) -> EgressRecord:
        """Convert to a record; rejects unsupported options."""
        self.reject_unsupported()
        return EgressRecord(**self.model_dump(include=set(EgressRecord.model_fields)))


def shown(network: NetworkRecord) -> dict[str, Any]:
    """Return the options that were set."""
    return NetworkConfig(**network.model_dump()).model_dump(by_alias=True, exclude_none=True)


def _is_host(mask: str) -> bool:
    host = mask.replace("${PORT}", "1")
    return len(host) <= _LONGEST_HOST and _HOST.fullmatch(host) is not None
