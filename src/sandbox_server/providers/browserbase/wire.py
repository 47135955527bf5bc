"""Conversions between the server's types and Browserbase's API."""

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from sandbox_server.providers.protocol.provider import (
    Access,
    NewSandbox,
    ProviderSandbox,
    ReportedState,
)

INSTALLATION = "sandbox_server_installation"
SANDBOX = "sandbox_server_sandbox"
TENANT = "sandbox_server_tenant"

TEMPLATE = "browser"
"""The name of the template that its sessions count as."""

SHORTEST, LONGEST = timedelta(seconds=60), timedelta(hours=6)
"""Limits of a session's timeout."""

LIVING = ("PENDING", "RUNNING")

Session = Mapping[str, Any]


def new_session(
    wanted: NewSandbox, *, installation_id: str, project_id: str | None
) -> dict[str, Any]:
    """Build the request. The session outlives its connections: this server decides when it ends."""
    lifetime = min(max(wanted.lifetime or wanted.timeout, SHORTEST), LONGEST)
    body = {
        "keepAlive": True,
        "timeout": math.ceil(lifetime.total_seconds()),
        "userMetadata": {
            INSTALLATION: installation_id,
            SANDBOX: wanted.sandbox_id,
            TENANT: wanted.tenant_id,
        },
    }
    return body if project_id is None else {**body, "projectId": project_id}


def labels_of(session: Session) -> Mapping[str, Any]:
    labels = session.get("userMetadata")
    return labels if isinstance(labels, dict) else {}


def has_ended(session: Session) -> bool:
    return session["status"] not in LIVING


def provider_sandbox(session: Session) -> ProviderSandbox:
    labels = labels_of(session)
    return ProviderSandbox(
        id=session["id"],
        state=ReportedState.RUNNING,
        sandbox_id=labels.get(SANDBOX),
        installation_id=labels.get(INSTALLATION),
        tenant_id=labels.get(TENANT),
        template=TEMPLATE,
        started_at=datetime.fromisoformat(session.get("startedAt") or session["createdAt"]),
        ends_at=datetime.fromisoformat(session["expiresAt"]),
    )


def access(session: Session) -> Access:
    return Access(
        provider_id=session["id"],
        domain=None,
        envd_version="",
        envd_token=None,
        traffic_token=None,
        cdp_url=session["connectUrl"],
    )
