"""Keyword arguments of requests; omitted ones take the server's defaults."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:  # `sbx` would load all models for one verb
    from sandbox_client.models.access import KeyScope, TenantDefaults, TenantRule
    from sandbox_client.models.agent_runs import AgentName, PermissionMode
    from sandbox_client.models.desktops import DesktopOptions
    from sandbox_client.models.forges import ForgeAuth
    from sandbox_client.models.repositories import RepositorySettings
    from sandbox_client.models.sandboxes import Network, OnTimeout, Resources, SandboxRepository
    from sandbox_client.models.tasks import (
        TaskAttemptCreate,
        TaskBudget,
        TaskChoice,
        TaskPullRequest,
    )
    from sandbox_client.models.templates import TemplateStep


class SessionSandboxOptions(TypedDict, total=False):
    template: str | None
    capabilities: Sequence[str]
    backend: str | None
    agent_type: str | None
    user_id: str | None
    metadata: Mapping[str, str]
    envs: Mapping[str, str]
    timeout_s: float | None
    on_timeout: OnTimeout | str | None
    idle_timeout_s: float | None
    auto_resume: bool | None
    priority: int | None
    queue_timeout_s: float | None
    network: Network | Mapping[str, Any] | None
    resources: Resources | Mapping[str, Any] | None
    volumes: Mapping[str, str]
    mcp_servers: Mapping[str, Mapping[str, Any]]
    repository: SandboxRepository | Mapping[str, Any] | None
    desktop: DesktopOptions | Mapping[str, Any] | None


class SandboxOptions(SessionSandboxOptions, total=False):
    session_id: str | None


class SandboxChanges(TypedDict, total=False):
    metadata: Mapping[str, str]
    timeout_s: float
    on_timeout: OnTimeout | str
    idle_timeout_s: float | None
    """None disables the idle pause."""
    auto_resume: bool
    priority: int
    mcp_servers: Mapping[str, Mapping[str, Any]]


class BrowserOptions(TypedDict, total=False):
    template: str | None
    backend: str | None
    agent_type: str | None
    timeout_s: float
    keep_alive: bool
    log: bool
    record: bool
    captcha: bool | None
    metadata: Mapping[str, str]
    user_id: str | None
    priority: int
    queue_timeout_s: float | None


class ForkOptions(TypedDict, total=False):
    user_id: str | None
    session_id: str | None
    metadata: Mapping[str, str] | None
    timeout_s: float | None


class CodeOptions(TypedDict, total=False):
    """Options of code; unset: the server's defaults."""

    language: str | None
    context_id: str | None
    env_vars: Mapping[str, str]
    timeout_s: float | None


class CommandOptions(TypedDict, total=False):
    cwd: str | None
    envs: Mapping[str, str]
    user: str | None
    timeout_s: float | None
    """Kill the command after this many seconds; None: no limit."""


class TerminalOptions(TypedDict, total=False):
    cols: int
    rows: int
    cmd: str | None
    cwd: str | None
    envs: Mapping[str, str]
    user: str | None


class DesktopActionOptions(TypedDict, total=False):
    coordinate: Sequence[int] | None
    start_coordinate: Sequence[int] | None
    text: str | None
    scroll_direction: str | None
    scroll_amount: int | None
    duration_s: float | None
    region: Sequence[int] | None
    screenshot: bool


class AgentRunOptions(TypedDict, total=False):
    model: str | None
    tools: Sequence[str] | None
    permission_mode: PermissionMode | str | None
    cwd: str | None
    session_id: str | None
    max_turns: int | None
    timeout_s: float | None
    envs: Mapping[str, str]
    pause_after: bool


class TemplateOptions(TypedDict, total=False):
    dockerfile: str | None
    from_image: str | None
    from_template: str | None
    steps: Sequence[TemplateStep | Mapping[str, Any]]
    envs: Mapping[str, str]
    start_command: str | None
    ready_command: str | None
    cpu_count: int | None
    memory_mb: int | None
    capabilities: Sequence[str] | None
    backends: Sequence[str] | None
    force: bool


class ForgeOptions(TypedDict, total=False):
    auth: ForgeAuth | str | None
    api_url: str | None
    git_url: str | None
    token: str | None
    app_id: str | None
    private_key: str | None
    webhook_secret: str | None
    git_only: bool
    git_username: str | None


class TaskOptions(TypedDict, total=False):
    title: str | None
    instructions: str | None
    issue: int | None
    base: str | None
    agent: AgentName | str | None
    command: str | None
    model: str | None
    attempts: int | Sequence[TaskAttemptCreate | Mapping[str, Any]] | None
    choice: TaskChoice
    budget: TaskBudget | Mapping[str, Any]
    pull_request: TaskPullRequest | str | None
    metadata: Mapping[str, str]
    priority: int


class KeyOptions(TypedDict, total=False):
    tenant: str
    name: str
    scopes: Sequence[KeyScope | str]
    max_priority: int
    rate_per_s: float | None


class TenantOptions(TypedDict, total=False):
    max_running: int
    max_queued: int
    defaults: TenantDefaults | Mapping[str, Any]
    rules: Sequence[TenantRule | Mapping[str, Any]]


class RepositoryOptions(TypedDict, total=False):
    settings: RepositorySettings | Mapping[str, Any]
    envs: Mapping[str, str]


class RepositoryChanges(RepositoryOptions, total=False):
    triggers_paused: bool
