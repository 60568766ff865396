"""Serve notes.py over HTTP on an inherited listening socket: over_http.py FD streamable-http|sse."""

import socket
import sys

import uvicorn
from notes import mcp

listening = socket.socket(fileno=int(sys.argv[1]))
app = mcp.streamable_http_app() if sys.argv[2] == "streamable-http" else mcp.sse_app()
uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listening])
