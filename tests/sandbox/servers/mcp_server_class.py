"""The official SDK's names of either major version."""

try:
    from mcp.server.mcpserver import MCPServer as Server
    from mcp.shared.exceptions import MCPError as ProtocolError
except ModuleNotFoundError:
    from mcp.server.fastmcp import FastMCP as Server  # noqa: F401
    from mcp.shared.exceptions import McpError
    from mcp.types import ErrorData

    class ProtocolError(McpError):
        def __init__(self, code: int, message: str) -> None:
            super().__init__(ErrorData(code=code, message=message))
