from typing import Annotated, Any

from fastmcp.exceptions import ToolError
from pydantic import BaseModel, Field

from sandbox_tools.gateway.config_files import InvalidConfigFile
from sandbox_tools.gateway.gateway import Gateway, Status
from sandbox_tools.gateway.server_config import (
    SEPARATOR,
    ConfigSource,
    InvalidServerConfig,
    ServerConfig,
)

_READY_TIMEOUT_SECONDS = 30
_MAX_LOG = 2000

Name = Annotated[str, Field(description="Name of the server, from mcp_list_servers.")]


class ServerStatus(BaseModel):
    name: str
    state: str = Field(description="ready, starting, failed (retried automatically) or disabled")
    error: str | None = Field(default=None, description="Why it failed or what is missing.")
    tools: list[str] = Field(description=f"Full tool names: NAME{SEPARATOR}TOOL.")
    transport: str | None = Field(description="stdio, http or sse")
    source: str = Field(
        description="Where it is configured: built-in, shipped, user (mcp_add_server) or settings (the sandbox's server)"
    )
    description: str = ""
    log: str | None = Field(default=None, description="Log file with its stderr.")
    log_end: str | None = Field(default=None, description="End of the log file, if it failed.")


class ServerList(BaseModel):
    servers: list[ServerStatus]
    problems: list[str] = Field(description="Configuration files that are invalid, and why.")


class GatewayTools:
    """Tools that manage the MCP servers behind the gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._user = gateway.sources.user

    async def mcp_list_servers(self) -> ServerList:
        """List the configured MCP servers with state, error and tool names."""
        await self._gateway.reconcile()
        return ServerList(
            servers=[_told(status) for status in self._gateway.statuses()],
            problems=self._gateway.sources.problems(),
        )

    async def mcp_add_server(
        self,
        name: Annotated[
            str,
            Field(
                description=f"Name of the server; its tools are named NAME{SEPARATOR}TOOL.",
                max_length=40,
            ),
        ],
        command: Annotated[
            str | None,
            Field(description="Program of a stdio server, e.g. npx."),
        ] = None,
        args: Annotated[list[str] | None, Field(description="Arguments of the program.")] = None,
        env: Annotated[
            dict[str, str] | None,
            Field(description="Additional environment variables."),
        ] = None,
        cwd: Annotated[
            str | None, Field(description="Directory to run in. Default: the working directory.")
        ] = None,
        url: Annotated[str | None, Field(description="URL of an HTTP server.")] = None,
        headers: Annotated[
            dict[str, str] | None, Field(description="HTTP headers, e.g. Authorization.")
        ] = None,
        type: Annotated[  # noqa: A002 - the name in mcpServers files
            str | None,
            Field(description="stdio, http or sse. Default: stdio with command, http with url."),
        ] = None,
    ) -> ServerStatus:
        """Add or replace an MCP server and start it. Waits up to 30 s; returns its state and tool names.

        Pass either `command` or `url`. `${VAR}` and `${VAR:-default}` in values are expanded from the sandbox's environment; use this
        for secrets. The server is stored in ~/.config/sandbox/mcp.json and started again with the sandbox.
        """
        if (command is None) == (url is None):
            raise ToolError("Pass either command or url.")
        fields = {
            "type": type,
            "command": command,
            "args": args,
            "env": env,
            "cwd": cwd,
            "url": url,
            "headers": headers,
        }
        document = {key: value for key, value in fields.items() if value}
        self._check(ServerConfig.of(name, document, ConfigSource.USER))
        content = self._content()
        content["mcpServers"] = {**content.get("mcpServers", {}), name: document}
        _enabled_overrides(content).pop(name, None)
        return await self._apply(name, content)

    async def mcp_remove_server(self, name: Name) -> ServerList:
        """Remove an MCP server that mcp_add_server added, and end its processes. Returns the remaining servers."""
        content = self._content()
        servers = dict(content.get("mcpServers", {}))
        if servers.pop(name, None) is None:
            known = self._known(name)
            raise ToolError(
                f"{name} was not added with mcp_add_server (source: {known.config.source}) and cannot be removed."
                " Disable it with mcp_disable_server."
            )
        content["mcpServers"] = servers
        _enabled_overrides(content).pop(name, None)
        self._user.replace(content)
        return await self.mcp_list_servers()

    async def mcp_enable_server(self, name: Name) -> ServerStatus:
        """Enable an MCP server permanently. Waits up to 30 s; returns its state and tool names."""
        return await self._set_enabled(name, on=True)

    async def mcp_disable_server(self, name: Name) -> ServerStatus:
        """Disable an MCP server permanently: removes its tools and ends its processes."""
        return await self._set_enabled(name, on=False)

    async def _set_enabled(self, name: str, *, on: bool) -> ServerStatus:
        self._known(name)
        content = self._content()
        _enabled_overrides(content)[name] = on
        return await self._apply(name, content)

    async def _apply(self, name: str, content: dict[str, Any]) -> ServerStatus:
        self._user.replace(content)
        await self._gateway.reconcile()
        if upstream := self._gateway.upstreams.get(name):
            await upstream.wait_until_ready(_READY_TIMEOUT_SECONDS)
        return _told(self._known(name))

    def _content(self) -> dict[str, Any]:
        try:
            return self._user.load()
        except InvalidConfigFile as error:
            raise ToolError(str(error)) from None

    def _known(self, name: str) -> Status:
        if status := self._gateway.status(name):
            return status
        names = ", ".join(status.config.name for status in self._gateway.statuses())
        raise ToolError(f"No MCP server {name!r}. Configured servers: {names}.")

    def _check(self, config: ServerConfig) -> None:
        known = self._gateway.status(config.name)
        if known is not None and known.config.source is ConfigSource.SETTINGS:
            raise ToolError(
                f"{config.name} is configured by the sandbox's server. Choose another name."
            )
        try:
            config.launch(self._gateway.variables())
        except InvalidServerConfig as error:
            raise ToolError(str(error)) from None


def _enabled_overrides(content: dict[str, Any]) -> dict[str, Any]:
    switched = content.get("switched")
    content["switched"] = dict(switched) if isinstance(switched, dict) else {}
    return content["switched"]  # type: ignore[no-any-return]


def _told(status: Status) -> ServerStatus:
    config, failure = status.config, status.failure
    return ServerStatus(
        name=config.name,
        state=status.state,
        error=str(failure) if failure else None,
        tools=[f"{config.name}{SEPARATOR}{tool}" for tool in status.tools],
        transport=config.transport,
        source=config.source,
        description=config.description,
        log=str(status.log) if status.log else None,
        log_end=_end_of_log(status) if failure else None,
    )


def _end_of_log(status: Status) -> str | None:
    if status.log is None:
        return None
    with status.log.open("rb") as file:
        file.seek(max(0, status.log.stat().st_size - _MAX_LOG))
        return file.read(_MAX_LOG).decode(errors="replace") or None
