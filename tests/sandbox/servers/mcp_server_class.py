"""The official SDK's server class under its name of either major version."""

try:
    from mcp.server.mcpserver import MCPServer as Server
except ModuleNotFoundError:
    from mcp.server.fastmcp import FastMCP as Server  # noqa: F401
