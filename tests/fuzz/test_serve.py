"""`serve`: what it answers, what it refuses, and what it says of a campaign that runs, has ended or was killed."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest
from click.testing import CliRunner

from mhc.fuzz.campaign.store import FILE, Store
from mhc.fuzz.cli.main import main
from mhc.fuzz.report import Run, live, read
from mhc.fuzz.report.live import HOST, LiveServer, live_state
from mhc.fuzz.report.stored_run import Leg
from tests.support.report_stores import night


@contextmanager
def served(folder: Path) -> Iterator[LiveServer]:
    """A server of the run in `folder`, in a thread."""
    with LiveServer(folder) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveServer]:
    folder = tmp_path_factory.mktemp("night")
    night(folder, cases=20).close()
    with served(folder) as one:
        yield one


def ask(server: LiveServer, path: str = "/", method: str = "GET", **headers: str) -> tuple[HTTPResponse, str]:
    connection = HTTPConnection(HOST, server.server_address[1], timeout=30)
    try:
        connection.putrequest(method, path, skip_host=True)
        for name, value in {"Host": f"{HOST}:{server.server_address[1]}", **headers}.items():
            if value:
                connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer, answer.read().decode()
    finally:
        connection.close()


def test_it_serves_the_page_with_its_script_and_nothing_new_twice(server: LiveServer) -> None:
    answer, text = ask(server)
    assert (answer.status, answer.getheader("Content-Type")) == (200, "text/html; charset=utf-8")
    assert "5 findings in" in text
    assert "Ended: budget spent." in text
    assert '<script src="/live.js"' in text
    policy = answer.getheader("Content-Security-Policy") or ""
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.getheader("Access-Control-Allow-Origin") is None
    again, nothing = ask(server, If_None_Match=answer.getheader("ETag") or "")
    assert (again.status, nothing) == (304, "")
    script, code = ask(server, "/live.js")
    assert (script.status, script.getheader("Content-Type")) == (200, "text/javascript; charset=utf-8")
    assert "isEqualNode" in code
    port = server.server_address[1]
    assert ask(server, Host=f"localhost:{port}")[0].status == 200


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_it_takes_no_method_but_get(server: LiveServer, method: str) -> None:
    answer, _ = ask(server, method=method)
    assert (answer.status, answer.getheader("Allow")) == (405, "GET")
    assert ask(server, method="TRACE")[0].status == 501


@pytest.mark.parametrize(
    "path",
    [
        "/campaign.sqlite",
        "/../../etc/passwd",
        "/%2e%2e/live.js",
        "/?x",
        "/report.html",
        "http://evil.test/",
        "*",
    ],
)
def test_it_has_no_other_path(server: LiveServer, path: str) -> None:
    answer, text = ask(server, path)
    assert (answer.status, text) == (404, "Not Found\n")


@pytest.mark.parametrize("host", ["", "evil.test", "evil.test:PORT", HOST, f"{HOST}:1", "127.0.0.1.evil.test:PORT"])
def test_a_name_that_was_made_to_resolve_to_this_machine_is_refused(server: LiveServer, host: str) -> None:
    answer, text = ask(server, Host=host.replace("PORT", str(server.server_address[1])))
    assert answer.status == 421
    assert "findings" not in text


def test_it_follows_the_store_and_says_if_it_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "_FRESH", 0.0)
    store = Store.create(tmp_path / FILE)
    store.set_meta(device="cpu", implementations=[{"name": "manual"}])
    with served(tmp_path) as server:
        assert "The campaign has not begun." in ask(server)[1]
        leg = store.begin_leg(0.0)  # long ago: only what changes now shows that it runs
        assert "The campaign seems to have been killed or stopped." in ask(server)[1]
        store.tell_leg(leg, 3.0)
        assert "Running; this page updates itself." in ask(server)[1]
        store.tell_leg(leg, 5.0, "SIGINT")
        assert "Ended: SIGINT." in ask(server)[1]
        store.close()
        (tmp_path / FILE).write_text("<b>no</b> store" * 100, encoding="utf-8")
        answer, text = ask(server)
        assert (answer.status, answer.getheader("Content-Type")) == (503, "text/plain; charset=utf-8")
        assert text.startswith("The run cannot be read: ")


def test_the_state_of_a_campaign(tmp_path: Path) -> None:
    run: Run = read(tmp_path, Store.create(tmp_path / FILE))

    def state(now: float, unchanged: float, ended: str = "killed") -> tuple[str, str]:
        found = live_state(replace(run, legs=[Leg(1, 1000.0, 50.0, ended)]), now, unchanged)
        return found.word, found.more

    assert state(1051.0, float("inf")) == ("running", "")
    assert state(1049.0, float("inf")) == ("running", ""), "clocks may differ"
    assert state(1095.0, float("inf")) == ("silent", "No update for 45 s.")
    assert state(1095.0, 2.0) == ("running", ""), "the time in which it was stopped is not counted"
    assert state(1095.0, 20.0) == ("silent", "No update for 20 s.")
    assert state(9000.0, float("inf"), "budget spent") == ("ended", "")


def test_what_is_no_run_and_a_port_that_is_taken_are_usage(tmp_path: Path, server: LiveServer) -> None:
    def serve(*arguments: object) -> tuple[int, str]:
        done = CliRunner().invoke(main, ["serve", *map(str, arguments)])
        return done.exit_code, " ".join(done.output.split())

    assert serve(tmp_path / "absent")[0] == 2
    status, text = serve(tmp_path)
    assert (status, "it has no campaign.sqlite" in text) == (2, True)
    (tmp_path / FILE).write_text("no store" * 100, encoding="utf-8")
    assert serve(tmp_path)[0] == 2
    (tmp_path / FILE).unlink()
    Store.create(tmp_path / FILE).close()
    status, text = serve(tmp_path, "--port", server.server_address[1])
    assert (status, f"--port {server.server_address[1]}: " in text) == (2, True)


@pytest.mark.slow
def test_ctrl_c_ends_it_with_status_0(tmp_path: Path) -> None:
    night(tmp_path, cases=3).close()
    command = [sys.executable, "-m", "mhc.fuzz", "serve", str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line.startswith(f"serving {tmp_path} at http://127.0.0.1:")
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0
