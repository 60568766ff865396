"""The practice businesses as MCP tool servers; each also runs alone: ``python -m stateward.practice.servers.orders``."""
