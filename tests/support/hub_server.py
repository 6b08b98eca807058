"""A tiny server that answers as the Hugging Face hub does to what is asked of it when a model is fetched."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass
class HubModel:
    """A model on the server: the files of a folder, under one commit. A gated one shows its files to nobody."""

    folder: Path
    gated: bool = False
    revisions: tuple[str, ...] = ("main", COMMIT)


@dataclass
class Hub:
    """``asked``: the files whose content was sent, in that order."""

    url: str
    asked: list[str] = field(default_factory=list)


@contextmanager
def hub_server(models: dict[str, HubModel]) -> Iterator[Hub]:
    """Serve models by name (``owner/name``) on a free port of this machine."""
    hub = Hub("")

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None: ...

        def do_HEAD(self) -> None:
            self._answer()

        def do_GET(self) -> None:
            self._answer()

        def _answer(self) -> None:
            parts = unquote(urlsplit(self.path).path).strip("/").split("/")
            is_api = parts[:2] == ["api", "models"]
            owner, name, *rest = parts[2:] if is_api else parts
            model = models.get(f"{owner}/{name}")
            if model is None:
                self._refuse(404, "RepoNotFound")
            elif len(rest) > 1 and rest[1] not in model.revisions:
                self._refuse(404, "RevisionNotFound")
            elif is_api and rest[:1] == ["tree"]:
                self._send_json([_entry(path, model.folder) for path in _files(model.folder)])
            elif is_api:
                siblings = [{"rfilename": str(path.relative_to(model.folder))} for path in _files(model.folder)]
                self._send_json({"id": f"{owner}/{name}", "sha": COMMIT, "siblings": siblings})
            elif model.gated:
                self._refuse(403, "GatedRepo")
            else:
                self._send_file(model.folder / "/".join(rest[2:]))

        def _refuse(self, status: int, code: str) -> None:
            self._send(status, b"", {"X-Error-Code": code})

        def _send_json(self, value: object) -> None:
            self._send(200, json.dumps(value).encode(), {"Content-Type": "application/json"})

        def _send_file(self, path: Path) -> None:
            if not path.is_file():
                self._refuse(404, "EntryNotFound")
                return
            content = path.read_bytes()
            if self.command == "GET":
                hub.asked.append(path.name)
            tag = hashlib.sha1(content).hexdigest()
            self._send(200, content, {"X-Repo-Commit": COMMIT, "ETag": f'"{tag}"'})

        def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for key, value in (headers | {"Content-Length": str(len(content))}).items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def _entry(path: Path, folder: Path) -> dict[str, object]:
    oid = hashlib.sha1(path.read_bytes()).hexdigest()
    return {"type": "file", "path": str(path.relative_to(folder)), "size": path.stat().st_size, "oid": oid}
