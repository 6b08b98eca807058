"""A small OpenAI-compatible server in this process, which can misbehave."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """What the server sends. ``delay_s`` is waited for first; ``body`` stands in for the usual one."""

    text: str = ""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    body: str | None = None
    delay_s: float = 0.0
    finish_reason: str = "stop"


Script = Callable[[dict[str, Any], int], Answer]
"""The answer to the body of a request; the number says how many requests came before it."""


@dataclass
class ChatServer:
    url: str
    bodies: list[dict[str, Any]]
    keys: list[str]
    most_at_once: int = 0


@contextmanager
def chat_server(script: Script) -> Iterator[ChatServer]:
    """Serve ``/v1/chat/completions`` on a free port."""
    lock = threading.Lock()
    under_way = 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            nonlocal under_way
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                number = len(server.bodies)
                server.bodies.append(body)
                server.keys.append(self.headers.get("Authorization", ""))
                under_way += 1
                server.most_at_once = max(server.most_at_once, under_way)
            answer = script(body, number) if self.path == "/v1/chat/completions" else Answer(status=404)
            time.sleep(answer.delay_s)
            with lock:
                under_way -= 1
            content = (usual_body(answer, body) if answer.body is None else answer.body).encode()
            try:
                self.send_response(answer.status)
                for name, value in {"Content-Type": "application/json", **answer.headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)
            except OSError:
                self.close_connection = True  # the client did not wait

        def log_message(self, format: str, *args: Any) -> None: ...

    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    http.daemon_threads = True
    server = ChatServer(f"http://127.0.0.1:{http.server_address[1]}/v1", [], [])
    threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()


def usual_body(answer: Answer, request: dict[str, Any]) -> str:
    if answer.status >= 400:
        return json.dumps({"error": {"message": answer.text or "no", "type": "error"}})
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": answer.text},
        "finish_reason": answer.finish_reason,
    }
    usage = {"prompt_tokens": 100, "completion_tokens": 10, "total_tokens": 110}
    return json.dumps(
        {
            "id": "x",
            "object": "chat.completion",
            "created": 0,
            "model": request["model"],
            "choices": [choice],
            "usage": usage,
        }
    )
