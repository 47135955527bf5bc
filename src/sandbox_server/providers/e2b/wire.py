"""Conversions between the server's types and E2B's API."""

import math
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, cast

from e2b import SandboxNetworkOpts
from e2b.api.client.models import (
    ListedSandbox,
    NewSandboxV2,
    Sandbox,
    SandboxDetail,
    SandboxMetric,
    SandboxNetworkConfig,
    SandboxVolumeMount,
    SnapshotInfo,
)
from e2b.api.client.types import UNSET
from e2b.sandbox.sandbox_api import build_network_config

from sandbox_server.providers.protocol.provider import (
    Access,
    NewSandbox,
    ProviderSandbox,
    ReportedState,
    Usage,
)

INSTALLATION = "sandbox_server_installation"
SANDBOX = "sandbox_server_sandbox"
TENANT = "sandbox_server_tenant"


def new_sandbox(
    wanted: NewSandbox, *, installation_id: str, public_traffic: bool = False
) -> NewSandboxV2:
    """Build the request; if the server disappears, the provider pauses the sandbox and never kills it.

    Without `public_traffic` its ports require the provider's traffic token, so that the provider's address alone gives
    no access. Unset fields are omitted, since some providers refuse unknown fields.
    """
    closed = {} if public_traffic else {"allow_public_traffic": False}
    network = build_network_config(
        cast("SandboxNetworkOpts | None", {**(wanted.network or {}), **closed} or None)
    )
    return NewSandboxV2(
        template_id=wanted.template,
        timeout=seconds(wanted.timeout),
        auto_pause=True,
        auto_pause_memory=UNSET,
        metadata={
            INSTALLATION: installation_id,
            SANDBOX: wanted.sandbox_id,
            TENANT: wanted.tenant_id,
        },
        env_vars=dict(wanted.envs) or UNSET,
        allow_internet_access=UNSET if wanted.allow_internet is None else wanted.allow_internet,
        network=UNSET if network is None else SandboxNetworkConfig(**network),
        volume_mounts=[
            SandboxVolumeMount(name=volume_name(name, tenant_id=wanted.tenant_id), path=path)
            for path, name in wanted.volumes.items()
        ]
        or UNSET,
    )


def volume_name(name: str, *, tenant_id: str) -> str:
    """Build the provider's name of a tenant's volume; no tenant can name another one's."""
    return f"{tenant_id}-{name}"


def seconds(duration: timedelta) -> int:
    """Round up: a deadline may come late, never early."""
    return math.ceil(duration.total_seconds())


def access(sandbox: Sandbox) -> Access:
    return Access(
        provider_id=sandbox.sandbox_id,
        domain=sandbox.domain or None,
        envd_version=sandbox.envd_version,
        envd_token=sandbox.envd_access_token or None,
        traffic_token=sandbox.traffic_access_token or None,
    )


def provider_sandbox(sandbox: ListedSandbox | SandboxDetail) -> ProviderSandbox:
    metadata: Mapping[str, Any] = sandbox.metadata if isinstance(sandbox.metadata, dict) else {}
    return ProviderSandbox(
        id=sandbox.sandbox_id,
        state=ReportedState(sandbox.state.value),
        sandbox_id=metadata.get(SANDBOX),
        installation_id=metadata.get(INSTALLATION),
        tenant_id=metadata.get(TENANT),
        template=sandbox.template_id,
        started_at=sandbox.started_at,
        ends_at=sandbox.end_at,
    )


def has_labels(sandbox: ListedSandbox, labels: Mapping[str, str]) -> bool:
    """Whether the sandbox has all these labels."""
    metadata = sandbox.metadata if isinstance(sandbox.metadata, dict) else {}
    return all(metadata.get(key) == value for key, value in labels.items())


def is_named(snapshot: SnapshotInfo, name: str) -> bool:
    """Whether a snapshot has this name: `name`, `team/name` or `team/name:tag`."""
    references = (snapshot.snapshot_id, *(snapshot.names or ()))
    return name in {str(reference).rpartition("/")[2].partition(":")[0] for reference in references}


def usage(metric: SandboxMetric) -> Usage:
    return Usage(
        at=metric.timestamp,
        cpu_count=metric.cpu_count,
        cpu_percent=metric.cpu_used_pct,
        memory_used=metric.mem_used,
        memory_total=metric.mem_total,
        disk_used=metric.disk_used,
        disk_total=metric.disk_total,
    )
