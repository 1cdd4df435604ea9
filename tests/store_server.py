"""A real S3 server in a process of its own, which fails, is slow and breaks off when it is told to.

`python -m tests.store_server` prints its port and serves until its standard input ends.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

SECRET = "wJalrXUtnFEMI-not-to-be-seen-anywhere"
FAULTS_PATH = "/-faults"
LOG_PATH = "/-requests"


@dataclass(frozen=True)
class Fault:
    """What goes wrong with requests.

    Attributes:
        kind: "status" answers with an error, "reset" closes the connection half-way, "slow" waits first.
        method: of the requests that are hit; "" for all.
        key: a text that their paths have in them.
        times: how many requests are hit.
        after: so many of them are left alone first.
        status: of the answer.
        seconds: how long it waits.
    """

    kind: str
    method: str = ""
    key: str = ""
    times: int = 1_000_000
    status: int = 500
    seconds: float = 0.0
    after: int = 0


@dataclass
class Faulty:
    """A WSGI application in front of another, which does to requests what it was told to."""

    inner: Callable[..., Iterable[bytes]]
    faults: list[dict[str, Any]] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path == FAULTS_PATH:
            body = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
            with self.lock:
                self.faults, self.requests = json.loads(body), []
            start_response("200 OK", [("Content-Length", "0")])
            return []
        if path == LOG_PATH:
            with self.lock:
                log = json.dumps(self.requests).encode()
            start_response("200 OK", [("Content-Length", str(len(log)))])
            return [log]
        fault = self._fault(method, path)
        if fault is None:
            return self.inner(environ, start_response)
        if fault["kind"] == "slow":
            time.sleep(fault["seconds"])
            return self.inner(environ, start_response)
        if fault["kind"] == "reset":
            if method == "GET":
                half = b"HTTP/1.1 206 Partial Content\r\nContent-Length: 1000000\r\n\r\nhalf"
                environ["werkzeug.socket"].sendall(half)
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            start_response("200 OK", [("Content-Length", "0")])
            return []
        start_response(f"{fault['status']} Internal Server Error", [("Content-Length", "0")])
        return []

    def _fault(self, method: str, path: str) -> dict[str, Any] | None:
        with self.lock:
            self.requests.append(f"{method} {path}")
            for fault in self.faults:
                if fault["times"] and fault["method"] in ("", method) and fault["key"] in path:
                    if fault["after"]:
                        fault["after"] -= 1
                        continue
                    fault["times"] -= 1
                    return fault
        return None


class StoreServer:
    """The server, seen from the tests. A context manager."""

    def __enter__(self) -> StoreServer:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.store_server"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.endpoint = f"http://127.0.0.1:{int(self._process.stdout.readline())}"
        return self

    def __exit__(self, *error: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(10)

    @property
    def environment(self) -> dict[str, str]:
        """Return what a process needs to reach the server."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ACCESS_KEY_ID": "a-key",
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_REGION": "us-east-1",
        }

    def new_bucket(self) -> str:
        """Return the address of a bucket that nothing was written to."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self._call(f"/{name}", b"", "PUT")
        return f"s3://{name}"

    def fails(self, *faults: Fault) -> None:
        """Do this to the requests that come from now on, and nothing else any more."""
        self._call(FAULTS_PATH, json.dumps([asdict(fault) for fault in faults]).encode(), "POST")

    def requests(self) -> list[str]:
        """Return the requests since `fails` was called, as "GET /bucket/key"."""
        found: list[str] = json.loads(self._call(LOG_PATH, None, "GET"))
        return found

    def _call(self, path: str, body: bytes | None, method: str) -> bytes:
        request = urllib.request.Request(self.endpoint + path, data=body, method=method)
        request.add_header(
            "Authorization", "AWS4-HMAC-SHA256 Credential=a-key/20260101/us-east-1/s3/aws4_request"
        )
        with urllib.request.urlopen(request) as answer:
            content: bytes = answer.read()
        return content


def _serve() -> None:
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    app = Faulty(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, app, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.port, flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    _serve()
