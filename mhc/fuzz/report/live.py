"""Serve a run's report on this machine, read only, while its campaign runs: the page and its script, and nothing else."""

import hashlib
import sqlite3
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

from mhc.fuzz.campaign.store import StoreError
from mhc.fuzz.findings.known_issues import KnownIssue
from mhc.fuzz.report.page import Live, page
from mhc.fuzz.report.snapshot import read_folder
from mhc.fuzz.report.stored_run import Run
from mhc.fuzz.report.words import duration
from mhc.terminal import safe

HOST = "127.0.0.1"
_SILENT = 10.0  # seconds without an update after which a campaign may have been killed; a running one writes each second
_FRESH = 1.0  # seconds that a page is served for without a look at the store
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Answer:
    """The body of an answer, and its type. tag: its digest."""

    status: HTTPStatus
    kind: str
    body: bytes

    @property
    def tag(self) -> str:
        return f'"{hashlib.sha256(self.body).hexdigest()[:32]}"'


class LiveReport:
    """The report of a run as it is now, rendered at most once a second, for any number of readers.

    Raises:
        OSError, StoreError, sqlite3.DatabaseError: the run cannot be read.
    """

    def __init__(self, folder: Path, known_issues: Sequence[KnownIssue] | None = None) -> None:
        self._folder, self._known_issues = folder, known_issues
        self._lock = threading.Lock()
        self._told: tuple[int, float] | None = None  # the number of the last leg, and its seconds
        self._changed = float("-inf")
        self._answer = self._rendered()
        self._at = time.monotonic()

    def answer(self) -> Answer:
        """Return the page; if the run cannot be read any more, why."""
        with self._lock:
            if time.monotonic() - self._at > _FRESH:
                try:
                    self._answer = self._rendered()
                except (OSError, StoreError, sqlite3.DatabaseError) as error:
                    text = f"The run cannot be read: {safe(str(error))}"
                    self._answer = Answer(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", text.encode())
                self._at = time.monotonic()
            return self._answer

    def _rendered(self) -> Answer:
        run = read_folder(self._folder, self._known_issues)
        told = (run.legs[-1].number, run.legs[-1].seconds) if run.legs else None
        if self._told is not None and told != self._told:
            self._changed = time.monotonic()
        self._told = told
        text = page(run, live_state(run, time.time(), time.monotonic() - self._changed))
        return Answer(HTTPStatus.OK, "text/html", text.encode())


def live_state(run: Run, now: float, unchanged: float) -> Live:
    """Return whether a campaign runs, has ended, or writes nothing any more.

    Args:
        now: time of day. unchanged: seconds since the store was seen to change; infinite if it never was.
    """
    if not run.legs:
        return Live("waiting", "The campaign has not begun.")
    leg = run.legs[-1]
    if leg.ended != "killed":
        return Live("ended", f"Ended: {leg.ended}.")
    silent = min(max(0.0, now - leg.started - leg.seconds), unchanged)
    if silent <= _SILENT:
        return Live("running", "Running; this page updates itself.")
    return Live("silent", "The campaign seems to have been killed or stopped.", f"No update for {duration(silent)}.")


class _Handler(BaseHTTPRequestHandler):
    """Answers GET on the paths of `LiveServer.paths`, for the names of this machine only.

    A page of another site whose name was made to resolve to this machine (DNS rebinding) sends its own name as Host.
    """

    server: "LiveServer"
    timeout = 30
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "mhc.fuzz", ""

    def do_GET(self) -> None:
        answer = self._chosen()
        if answer.status == HTTPStatus.OK and self.headers.get("If-None-Match") == answer.tag:
            self._send(Answer(HTTPStatus.NOT_MODIFIED, "text/html", b""), answer.tag)
        else:
            self._send(answer, answer.tag)

    def refuse(self) -> None:
        """Answer what is no GET; its body is not read."""
        self.close_connection = True
        self._send(_refusal(HTTPStatus.METHOD_NOT_ALLOWED))

    do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = do_OPTIONS = refuse  # noqa: N815  the names that http.server calls

    def _chosen(self) -> Answer:
        if self.headers.get_all("Host", []) not in ([name] for name in self.server.names):
            return _refusal(HTTPStatus.MISDIRECTED_REQUEST)
        if self.path == "/":
            return self.server.report.answer()
        return self.server.files.get(self.path, _refusal(HTTPStatus.NOT_FOUND))

    def _send(self, answer: Answer, tag: str | None = None) -> None:
        self.send_response(answer.status)
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        if tag is not None:
            self.send_header("ETag", tag)
        if answer.status == HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET")
        if answer.status != HTTPStatus.NOT_MODIFIED:
            self.send_header("Content-Type", f"{answer.kind}; charset=utf-8")
            self.send_header("Content-Length", str(len(answer.body)))
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def log_message(self, format: str, *args: object) -> None:
        """Write nothing: the terminal has the address, and no line for each poll."""


def _refusal(status: HTTPStatus) -> Answer:
    return Answer(status, "text/plain", f"{status.phrase}\n".encode())


class LiveServer(ThreadingHTTPServer):
    """Serves a run at `url`, on this machine only.

    Args:
        port: 0 for one that is free. known_issues: as for `read_folder`.

    Raises:
        OSError: the port is taken. Also as for `LiveReport`.
    """

    daemon_threads = True
    files: ClassVar = {
        "/live.js": Answer(
            HTTPStatus.OK, "text/javascript", files(__package__).joinpath("templates", "live.js").read_bytes()
        )
    }

    def __init__(self, folder: Path, port: int = 0, known_issues: Sequence[KnownIssue] | None = None) -> None:
        self.report = LiveReport(folder, known_issues)
        super().__init__((HOST, port), _Handler)
        chosen = self.server_address[1]
        self.url = f"http://{HOST}:{chosen}/"
        self.names = {f"{name}:{chosen}" for name in (HOST, "localhost")} | ({HOST, "localhost"} if chosen == 80 else set())

    def handle_error(self, request: object, client_address: object) -> None:
        """Write nothing of a reader that has left; other exceptions as usual."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]
