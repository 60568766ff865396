"""A real HTTP server that misbehaves on demand."""

from __future__ import annotations

import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Endpoint:
    """A server that answers from a list: (status, headers, body), "drop" (close the connection), "hang", or parts of an
    answer that is never whole."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.requests: list[tuple[str, dict[str, Any], dict[str, str]]] = []
        self.closing = threading.Event()
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                endpoint.requests.append((self.path, body, dict(self.headers.items())))
                answer = endpoint.answers.pop(0)
                if answer == "drop":
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                if answer == "hang":
                    endpoint.closing.wait()
                    self.close_connection = True
                    return
                if isinstance(answer, list):  # parts of an answer, seconds between them
                    self.send_response(200)
                    self.send_header("content-length", "1000")
                    self.end_headers()
                    for part in answer:
                        self.wfile.write(part)
                        self.wfile.flush()
                        if endpoint.closing.wait(0.2):
                            break
                    self.close_connection = True
                    return
                status, headers, content = answer
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                self.send_response(status)
                for key, value in {"content-length": str(len(data)), **headers}.items():
                    self.send_header(key, value)
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                pass  # a dropped connection is what was asked for

        self.server = Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
