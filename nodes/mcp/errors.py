"""What can go wrong with an MCP server. None of it ends a run: the model reads the sentence as the call's result."""

from __future__ import annotations

from checkpoints.errors import CheckreinError, UsageError


class McpExtraMissingError(UsageError):
    """The configuration names MCP servers and the client library is not installed."""

    code = "missing_extra"
    hint = "Install the extra: pip install 'checkrein[mcp]'; or set enabled = false for the servers."

    def __init__(self) -> None:
        super().__init__("MCP servers are configured, but the library that speaks to them is not installed.")


class McpServerError(CheckreinError):
    """A server did not do what was asked of it.

    Attributes:
        server: Its name in the configuration.
        reason: What happened, a phrase with the server as its subject.
    """

    code = "mcp_server"

    def __init__(self, server: str, reason: str) -> None:
        self.server = server
        self.reason = reason
        super().__init__(server, reason)

    def __str__(self) -> str:
        return f"The MCP server {self.server} {self.reason}."


class ServerUnavailableError(McpServerError):
    """The server could not be started or reached, so nothing of the call ran."""

    code = "mcp_unavailable"
    hint = "Nothing ran. The next call tries to start the server again."


class ServerLostError(McpServerError):
    """The server ended while a call was under way, so whether the call had an effect is unknown."""

    code = "mcp_lost"
    hint = "Whether the call had an effect is not known; look before calling it again."


class CallTimedOutError(McpServerError):
    """A call took longer than the configuration gives it. It has been withdrawn."""

    code = "mcp_timeout"
    hint = "Whether the call had an effect is not known; look before calling it again."


class ToolChangedError(McpServerError):
    """A server describes a tool otherwise than when people and the policy saw it, so nothing of the call ran."""

    code = "mcp_tool_changed"
    hint = "Nothing ran. Start Checkrein again to see what the server offers now."


class SchemaRefusedError(CheckreinError):
    """A tool's argument schema cannot be used; the tool is left out."""

    code = "mcp_schema"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"The schema of its arguments {reason}.")
