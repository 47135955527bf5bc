"""Errors on the wire, and every error code of the API with its HTTP status and title: the only place where these are written.

The server's errors and the client's exceptions name a `code` of this table. The classes and their families are in
`sandbox_server/domain/errors/` and `sandbox_client/errors/by_code.py`.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

from pydantic import Field

from sandbox_client.models.wire import ResponseModel


class ErrorCode(NamedTuple):
    code: str
    status: int
    title: str


_TABLE = (
    # The request as HTTP
    ErrorCode("malformed-request", 400, "Malformed request"),
    ErrorCode("route-not-found", 404, "Route not found"),
    ErrorCode("method-not-allowed", 405, "Method not allowed"),
    ErrorCode("body-too-large", 413, "Request body is too large"),
    ErrorCode("unsupported-media-type", 415, "Unsupported media type"),
    ErrorCode("validation-failed", 422, "Request validation failed"),
    ErrorCode("head-too-large", 431, "Request headers are too large"),
    ErrorCode("internal-error", 500, "Internal server error"),
    ErrorCode("database-unavailable", 503, "Database is unavailable"),
    # Families
    ErrorCode("invalid-request", 422, "Invalid request"),
    ErrorCode("not-found", 404, "Not found"),
    ErrorCode("conflict", 409, "Conflict"),
    ErrorCode("access-denied", 403, "Access denied"),
    ErrorCode("limit-reached", 429, "Limit reached"),
    # Access
    ErrorCode("unauthenticated", 401, "Missing or invalid API key"),
    ErrorCode("metrics-refused", 401, "Metrics token required"),
    ErrorCode("scope-missing", 403, "API key lacks a scope"),
    ErrorCode("login-refused", 403, "Session cookie is not accepted here"),
    ErrorCode("ticket-refused", 403, "Ticket is not valid for this request"),
    # Resources
    ErrorCode("sandbox-not-found", 404, "Sandbox not found"),
    ErrorCode("tenant-not-found", 404, "Tenant not found"),
    ErrorCode("key-not-found", 404, "API key not found"),
    ErrorCode("template-not-found", 404, "Template not found"),
    ErrorCode("backend-not-found", 404, "Backend not found"),
    ErrorCode("job-not-found", 404, "Job not found"),
    ErrorCode("snapshot-not-found", 404, "Snapshot not found"),
    ErrorCode("browser-session-not-found", 404, "Browser session not found"),
    ErrorCode("browser-not-prepared", 502, "Browser did not accept the session's settings"),
    ErrorCode("browser-session-ended", 410, "Browser session has ended"),
    ErrorCode("browser-context-in-use", 409, "Browser context is in use"),
    ErrorCode("browser-context-not-found", 404, "Browser context not found"),
    ErrorCode("browser-extension-not-found", 404, "Browser extension not found"),
    ErrorCode("browser-recording-not-found", 404, "Browser recording not found"),
    ErrorCode("browser-project-not-found", 404, "Project not found"),
    ErrorCode("browserbase-path-not-found", 404, "Not in Browserbase's API"),
    ErrorCode("feature-unavailable", 501, "Not available on this server"),
    ErrorCode("command-not-found", 404, "Command not found"),
    ErrorCode("terminal-not-found", 404, "Terminal not found"),
    ErrorCode("code-execution-not-found", 404, "Execution not found"),
    ErrorCode("code-result-not-found", 404, "Result not found"),
    ErrorCode("code-context-not-found", 404, "Context not found"),
    ErrorCode("agent-run-not-found", 404, "Agent run not found"),
    ErrorCode("repository-not-found", 404, "Repository not found"),
    ErrorCode("delivery-not-found", 404, "Webhook delivery not found"),
    ErrorCode("repository-in-use", 409, "Repository has open tasks"),
    ErrorCode("forge-not-found", 404, "Forge not found"),
    ErrorCode("idempotency-mismatch", 422, "Idempotency key was used for a different request"),
    ErrorCode("name-taken", 409, "Name is already in use"),
    ErrorCode("too-many-templates", 409, "Too many templates"),
    ErrorCode("key-issued-before", 409, "API key was already created"),
    ErrorCode("task-not-found", 404, "Task not found"),
    ErrorCode("pull-request-not-found", 404, "The task has no pull request"),
    ErrorCode("attempt-not-found", 404, "Attempt not found"),
    ErrorCode("save-not-found", 404, "Save not found"),
    ErrorCode("task-exists", 409, "The issue has an open task"),
    ErrorCode("invalid-stage", 409, "Not possible in the task's current stage"),
    # Limits
    ErrorCode("queue-full", 429, "Queue is full"),
    ErrorCode("rate-limited", 429, "Rate limit exceeded"),
    ErrorCode("too-many-at-once", 429, "Too many concurrent requests"),
    ErrorCode("too-many-commands", 429, "Too many running commands"),
    ErrorCode("interpreter-busy", 429, "Code interpreter is at its limit"),
    ErrorCode("too-many-streams", 429, "Too many open streams"),
    ErrorCode("too-many-tickets", 429, "Too many tickets"),
    # Lifecycle
    ErrorCode("invalid-transition", 409, "Not possible in the sandbox's current state"),
    ErrorCode("sandbox-paused", 409, "Sandbox is paused"),
    ErrorCode("superseded", 409, "Sandbox changed concurrently"),
    ErrorCode("sandbox-failed", 410, "Sandbox has failed"),
    ErrorCode("start-refused", 422, "Invalid sandbox configuration"),
    ErrorCode("start-failed", 502, "Sandbox did not start"),
    ErrorCode("resume-failed", 502, "Sandbox did not resume"),
    ErrorCode("snapshot-failed", 502, "Snapshot failed"),
    ErrorCode("not-ready", 503, "Sandbox is not ready yet"),
    # Files
    ErrorCode("path-not-found", 404, "Path not found"),
    ErrorCode("path-refused", 409, "Path cannot be used for this operation"),
    ErrorCode("file-busy", 409, "File is being replaced concurrently"),
    ErrorCode("directory-not-empty", 409, "Directory is not empty"),
    ErrorCode("transfer-stalled", 408, "Transfer stalled"),
    ErrorCode("file-changed", 412, "ETag does not match"),
    ErrorCode("file-too-large", 413, "File is too large"),
    ErrorCode("too-many-entries", 413, "Directory listing is too long"),
    ErrorCode("range-outside", 416, "Range is beyond the end of the file"),
    ErrorCode("archive-failed", 422, "Archive could not be packed or unpacked"),
    ErrorCode("disk-full", 507, "Disk of the sandbox is full"),
    # Commands and terminals
    ErrorCode("command-not-running", 409, "Command is not running"),
    ErrorCode("stdin-closed", 409, "Stdin of the command is closed"),
    ErrorCode("command-not-started", 422, "Command did not start"),
    ErrorCode("control-not-understood", 422, "Invalid control message"),
    ErrorCode("code-refused", 422, "Code interpreter rejected the request"),
    ErrorCode("command-timed-out", 504, "Command timed out"),
    # Servers inside the sandbox
    ErrorCode("not-passed-on", 501, "Request cannot be forwarded"),
    ErrorCode("port-not-open", 502, "Port is not open"),
    ErrorCode("port-broken", 502, "Invalid response from the server in the sandbox"),
    ErrorCode("port-silent", 504, "Server in the sandbox did not respond in time"),
    ErrorCode("tools-not-running", 502, "Tool server is not running"),
    ErrorCode("agent-server-not-running", 502, "Agent server is not running"),
    ErrorCode("browser-not-running", 502, "Browser is not running"),
    ErrorCode("browser-path-not-found", 404, "Path of the browser not found"),
    ErrorCode("interpreter-missing", 409, "Sandbox has no code interpreter"),
    ErrorCode("interpreter-unreachable", 502, "Code interpreter did not answer"),
    ErrorCode("tools-refused", 502, "Service in the sandbox rejected this server"),
    # Desktops
    ErrorCode("desktop-not-running", 409, "Sandbox has no desktop"),
    ErrorCode("desktop-controlled", 409, "A person controls the desktop"),
    ErrorCode("desktop-not-streamed", 409, "Desktop is not streamed"),
    ErrorCode("desktop-refused", 422, "Desktop rejected the request"),
    ErrorCode("desktop-link-not-found", 404, "Desktop link not found"),
    ErrorCode("desktop-recording-not-found", 404, "Desktop recording not found"),
    # Forges
    ErrorCode("forge-in-use", 409, "Forge is in use"),
    ErrorCode("forge-host-not-allowed", 422, "Host of the forge is not allowed"),
    ErrorCode("signature-refused", 401, "Webhook signature is missing or wrong"),
    ErrorCode("forge-error", 502, "Forge failed"),
    ErrorCode("forge-unavailable", 503, "Forge is unavailable"),
    ErrorCode("forge-limited", 503, "Rate limit of the forge"),
    ErrorCode("forge-credential-refused", 422, "Forge rejects the credential"),
    ErrorCode("forge-permission-missing", 422, "Credential lacks a permission at the forge"),
    ErrorCode("forge-resource-not-found", 404, "Not found at the forge"),
    ErrorCode("forge-refused", 422, "Forge rejected the request"),
    ErrorCode("pull-request-exists", 409, "Pull request already exists"),
    ErrorCode("not-supported-by-forge", 422, "Forge does not support this request"),
    # Git
    ErrorCode("git-error", 502, "Git failed"),
    ErrorCode("git-unavailable", 503, "Git is not installed"),
    ErrorCode("git-timed-out", 504, "Git took too long"),
    ErrorCode("remote-unreachable", 503, "Git server is unreachable"),
    ErrorCode("remote-refused", 502, "Git server refused access"),
    ErrorCode("repository-too-large", 413, "Repository is too large"),
    ErrorCode("commit-not-found", 404, "Commit not found"),
    ErrorCode("checkout-failed", 502, "Checkout failed"),
    ErrorCode("checkout-refused", 409, "Directory cannot be used for a checkout"),
    ErrorCode("save-failed", 502, "Work was not saved"),
    ErrorCode("save-too-large", 413, "Work is too large to save"),
    ErrorCode("bundle-refused", 422, "Bundle is not valid"),
    # Providers
    ErrorCode("no-backend", 503, "No backend is configured"),
    ErrorCode("backend-error", 502, "Sandbox provider failed"),
    ErrorCode("backend-unavailable", 503, "Sandbox provider is unavailable"),
    ErrorCode("answer-lost", 503, "Response of the sandbox provider was lost"),
    ErrorCode("backend-busy", 503, "Sandbox provider is at its limit"),
    ErrorCode("pause-conflict", 503, "Sandbox provider cannot pause the sandbox now"),
    ErrorCode("backend-refused", 422, "Sandbox provider rejected the request"),
    ErrorCode("call-not-supported", 501, "Sandbox provider does not support this request"),
    ErrorCode("lacks-capability", 501, "Sandbox provider does not have this capability"),
    ErrorCode("metadata-not-kept", 422, "Sandbox provider does not store metadata"),
    ErrorCode("sandbox-not-running", 409, "Sandbox is not running at its provider"),
    ErrorCode("sandbox-gone", 410, "Sandbox no longer exists at its provider"),
    ErrorCode("process-gone", 409, "Process no longer exists"),
)

ERROR_CODES: Final[Mapping[str, ErrorCode]] = {each.code: each for each in _TABLE}


class InputProblem(ResponseModel):
    """An invalid part of a request: a field of the body or a parameter."""

    detail: str
    pointer: str | None = Field(
        None, description="JSON pointer into the body, for example `#/metadata/team`."
    )
    parameter: str | None = Field(
        None, description="Name of the path parameter, query parameter or header."
    )


class Problem(ResponseModel):
    """An error (RFC 9457 problem details). `code` is stable; the texts may change."""

    type: str
    title: str
    status: int
    code: str
    detail: str
    remediation: str | None = None
    request_id: str
    errors: list[InputProblem] | None = None
