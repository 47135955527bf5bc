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

Name = Annotated[str, Field(description="The server's name, as mcp_list_servers has it.")]


class ServerStatus(BaseModel):
    name: str
    state: str = Field(
        description="ready; starting; failed, which is tried again by itself; or disabled"
    )
    error: str | None = Field(default=None, description="What is wrong with it, if anything.")
    tools: list[str] = Field(description=f"Its tools, as they are called: NAME{SEPARATOR}TOOL.")
    transport: str | None = Field(description="stdio, http or sse")
    source: str = Field(
        description="Who named it: built-in, shipped, user (mcp_add_server) or settings (the sandbox's server)"
    )
    description: str = ""
    log: str | None = Field(default=None, description="The file with what it writes to stderr.")
    log_end: str | None = Field(
        default=None, description="The end of that file, if something is wrong."
    )


class ServerList(BaseModel):
    servers: list[ServerStatus]
    problems: list[str] = Field(description="Files of servers that could not be read, and why.")


class GatewayTools:
    """What agents do with the servers behind the gateway."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._user = gateway.sources.user

    async def mcp_list_servers(self) -> ServerList:
        """List the MCP servers behind this one: which are on, whether they work and why not, and the names of their tools."""
        await self._gateway.reconcile()
        return ServerList(
            servers=[_told(status) for status in self._gateway.statuses()],
            problems=self._gateway.sources.problems(),
        )

    async def mcp_add_server(
        self,
        name: Annotated[
            str,
            Field(description=f"Its tools will be called NAME{SEPARATOR}TOOL.", max_length=40),
        ],
        command: Annotated[
            str | None,
            Field(description="For a server that talks over stdio: the program, such as npx."),
        ] = None,
        args: Annotated[list[str] | None, Field(description="The program's arguments.")] = None,
        env: Annotated[
            dict[str, str] | None,
            Field(description="Environment variables it gets besides the sandbox's own."),
        ] = None,
        cwd: Annotated[
            str | None, Field(description="Directory to run it in. Default: the working directory.")
        ] = None,
        url: Annotated[
            str | None, Field(description="For a server that talks over HTTP: its address.")
        ] = None,
        headers: Annotated[
            dict[str, str] | None, Field(description="HTTP headers it wants, as Authorization.")
        ] = None,
        type: Annotated[  # noqa: A002 - as the files have it
            str | None,
            Field(
                description="stdio, http or sse; by default stdio with a command, http with a url"
            ),
        ] = None,
    ) -> ServerStatus:
        """Add an MCP server, or replace the one of this name that was added before, and start it.

        Give either `command` or `url`. `${VAR}` and `${VAR:-default}` in values stand for the sandbox's environment variables: write
        secrets so. Waits up to 30 s for its tools. It is kept in ~/.config/sandbox/mcp.json, and started again with the sandbox.
        """
        if (command is None) == (url is None):
            raise ToolError("Give either a command or a url.")
        given = {
            "type": type,
            "command": command,
            "args": args,
            "env": env,
            "cwd": cwd,
            "url": url,
            "headers": headers,
        }
        document = {key: value for key, value in given.items() if value}
        self._check(ServerConfig.of(name, document, ConfigSource.USER))
        content = self._content()
        content["mcpServers"] = {**content.get("mcpServers", {}), name: document}
        _enabled_overrides(content).pop(name, None)
        return await self._apply(name, content)

    async def mcp_remove_server(self, name: Name) -> ServerList:
        """Remove an MCP server that was added by mcp_add_server, and end its processes."""
        content = self._content()
        servers = dict(content.get("mcpServers", {}))
        if servers.pop(name, None) is None:
            known = self._known(name)
            raise ToolError(
                f"{name} is {known.config.source}, not added here, and cannot be removed."
                " Switch it off by mcp_disable_server."
            )
        content["mcpServers"] = servers
        _enabled_overrides(content).pop(name, None)
        self._user.replace(content)
        return await self.mcp_list_servers()

    async def mcp_enable_server(self, name: Name) -> ServerStatus:
        """Switch an MCP server on and wait up to 30 s for its tools. It stays on until it is switched off."""
        return await self._set_enabled(name, on=True)

    async def mcp_disable_server(self, name: Name) -> ServerStatus:
        """Switch an MCP server off: its tools go and its processes end. It stays off until it is switched on."""
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
        raise ToolError(f"There is no MCP server {name!r}. There are: {names}.")

    def _check(self, config: ServerConfig) -> None:
        known = self._gateway.status(config.name)
        if known is not None and known.config.source is ConfigSource.SETTINGS:
            raise ToolError(f"{config.name} is given by the sandbox's server. Take another name.")
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
