"""Answers of Browserbase's API."""

from collections.abc import Mapping
from datetime import UTC, datetime
from math import ceil
from typing import Any

from sandbox_server.browserbase.projects import Project, project_id_of
from sandbox_server.browsers.records.recordings import PageRecording
from sandbox_server.browsers.records.videos import LAST_S
from sandbox_server.browsers.urls import BrowserUrls
from sandbox_server.db.models import BrowserContext, BrowserExtension, BrowserSession


def view_session(row: BrowserSession) -> dict[str, Any]:
    """Describe a session. Instants that a pending one does not have yet are those of an immediate start."""
    started_at = row.started_at or row.created_at
    view = {
        "id": row.id,
        "createdAt": _instant(row.created_at),
        "startedAt": _instant(started_at),
        "updatedAt": _instant(row.updated_at),
        "expiresAt": _instant(row.expires_at or started_at + row.timeout),
        "keepAlive": row.keep_alive,
        "projectId": project_id_of(row.tenant_id),
        "proxyBytes": row.proxy_bytes,
        "region": row.settings.get("region", "us-west-2"),
        "status": row.state.value.upper(),
        "userMetadata": row.labels,
    }
    if row.context_id is not None:
        view["contextId"] = row.context_id
    if row.ended_at is not None:
        view["endedAt"] = _instant(row.ended_at)
    return view


def view_urls(urls: BrowserUrls, token: str) -> dict[str, str]:
    """List the URLs at which drivers connect."""
    return {
        "connectUrl": urls.cdp_url,
        "seleniumRemoteUrl": urls.webdriver_url,
        "signingKey": token,
    }


def view_page(target: Mapping[str, Any], live_url: str) -> dict[str, str]:
    return {
        "id": target["id"],
        "url": target.get("url", ""),
        "title": target.get("title", ""),
        "faviconUrl": target.get("faviconUrl", ""),
        "debuggerUrl": live_url,
        "debuggerFullscreenUrl": live_url,
    }


def view_recorded_page(recording: PageRecording) -> dict[str, Any]:
    return {
        "pageId": str(recording.page),
        "url": recording.url,
        "startTimeMs": recording.first_ms,
        "endTimeMs": recording.last_ms,
    }


def view_video(recording: PageRecording, url: str) -> dict[str, Any]:
    return {
        "pageId": str(recording.page),
        "status": "COMPLETED",
        "completedAt": _instant(datetime.fromtimestamp(recording.last_ms / 1000, UTC)),
        "downloadUrl": url,
    }


def view_playlist(recording: PageRecording, url: str) -> str:
    """Describe a video of one segment, as RFC 8216 does."""
    seconds = (recording.last_ms - recording.first_ms) / 1000 + LAST_S
    lines = (
        *("#EXTM3U", "#EXT-X-VERSION:3", "#EXT-X-PLAYLIST-TYPE:VOD"),
        f"#EXT-X-TARGETDURATION:{ceil(seconds)}",
        *(f"#EXTINF:{seconds:.3f},", url, "#EXT-X-ENDLIST", ""),
    )
    return "\n".join(lines)


def view_context(row: BrowserContext) -> dict[str, Any]:
    view = {
        "id": row.id,
        "projectId": project_id_of(row.tenant_id),
        "createdAt": _instant(row.created_at),
        "updatedAt": _instant(row.updated_at),
    }
    return view if row.name is None else {**view, "name": row.name}


def view_new_context(row: BrowserContext) -> dict[str, Any]:
    """Describe a created context; its upload fields are without use, as at Browserbase."""
    return {
        **view_context(row),
        "cipherAlgorithm": "AES-256-CBC",
        "initializationVectorSize": 16,
        "publicKey": "",
        "uploadUrl": "https://uploads-of-contexts.invalid/",
    }


def view_extension(row: BrowserExtension) -> dict[str, Any]:
    return {
        "id": row.id,
        "fileName": row.file_name,
        "projectId": project_id_of(row.tenant_id),
        "createdAt": _instant(row.created_at),
        "updatedAt": _instant(row.created_at),
    }


def view_project(project: Project) -> dict[str, Any]:
    return {
        "id": project.id,
        "name": project.name,
        "ownerId": project.id,
        "concurrency": project.concurrency,
        "defaultTimeout": project.default_timeout_s,
        "createdAt": _instant(project.created_at),
        "updatedAt": _instant(project.created_at),
    }


def _instant(instant: datetime) -> str:
    return instant.isoformat(timespec="milliseconds").replace("+00:00", "Z")
