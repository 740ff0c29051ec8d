"""The ``entrepot`` command, as a person meets it."""

from __future__ import annotations

import hashlib
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

import httpx
import pytest

from registry.cli.main import main
from tests.databases import program, program_environment
from tests.entrepot import copied_install, told
from tests.live import start_registry
from tests.loaded import Program
from tests.postgresql import free_port
from tests.waiting import until

LAYER: Final = b"layer" * 10_000


@pytest.mark.usefixtures("no_settings")
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "registry.example"])
def test_dev_listens_on_loopback_only(
    host: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["dev", "--host", host, "--data", str(tmp_path / "data")]) == 2
    assert "loopback" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_an_unknown_setting_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("ENTREPOT_TYPO", "1")
    assert main(["fsck"]) == 2
    assert "ENTREPOT_TYPO" in capsys.readouterr().err


def test_dev_tells_what_to_try_and_keeps_its_data(tmp_path: Path) -> None:
    data = tmp_path / "data"
    for round_number in (1, 2):
        # Once as a program of its own, which has loaded nothing before.
        registry = start_registry(data, forks=round_number > 1)
        try:
            name = registry.url.removeprefix("http://") + "/dev/hello:1"
            assert f"docker push {name}" in registry.log
            assert f"docker pull {name}" in registry.log
            with httpx.Client(base_url=registry.url) as client:
                if round_number == 1:
                    client.post("/v2/dev/kept/blobs/uploads/")
                assert client.get("/v2/_catalog").json() == {"repositories": ["dev/kept"]}
                assert client.get("/healthz").status_code == 200
                assert client.get("/readyz").status_code == 200
                missing = client.get("/v1/repositories")
                assert "entrepot serve" in missing.json()["error"]["message"]
                assert missing.json()["error"]["code"] == "NOT_FOUND"
                assert missing.headers["x-request-id"] == missing.json()["error"]["request_id"]
        finally:
            assert registry.stop(signal.SIGINT) == 0
        if round_number == 1:
            assert '"path":"/v1/repositories"' in registry.lines[-1]


def test_nothing_is_printed_as_a_program_ends(tmp_path: Path) -> None:
    """By the interpreter, which finds as it frees objects what nobody has closed or awaited."""
    shown = copied_install(tmp_path / "data")
    registry = start_registry(tmp_path / "data", command="serve", forks=False)
    try:
        key = told("access key id", shown)
        ended = subprocess.run(
            program("registry", "login", registry.url, "--access-key-id", key),
            env=program_environment() | {"XDG_CONFIG_HOME": str(tmp_path)},
            input=told("secret access key", shown) + "\n",
            capture_output=True,
            text=True,
            check=False,
        )
        assert (ended.returncode, ended.stderr) == (0, "")
        assert ended.stdout.startswith("Signed in to ")
        assert httpx.get(f"{registry.url}/v1/last").status_code == 404
    finally:
        assert registry.stop() == 0
    assert '"path":"/v1/last"' in registry.lines[-1]


def loaded_by(code: str) -> set[str]:
    """Return the modules that a program has loaded at its end, which it prints to stderr."""
    found = subprocess.run(
        [sys.executable, "-c", f"import sys; {code}"],
        env=program_environment(),
        check=True,
        capture_output=True,
        text=True,
    )
    return set(found.stderr.split())


TELL: Final = "sys.stderr.write(' '.join(sys.modules))"


def test_dev_loads_nothing_that_only_serve_needs() -> None:
    """Its start is mostly imports: some two seconds of them on a slow machine."""
    loaded = loaded_by(f"import registry.cli.server.dev; {TELL}")
    assert "registry.distribution.app" in loaded
    dear = {"alembic", "jinja2", "registry.console.app", "cloudcore.identity.routes", "rich"}
    dear |= {"registry.control.routes", "cloudcore.catalog.routes", "registry.composition.serve"}
    assert not loaded & dear


def test_the_command_line_loads_no_server() -> None:
    loaded = loaded_by(f"import registry.cli.main as m; m.make_parser(); {TELL}")
    assert "registry.composition.families" in loaded
    assert not loaded & {"litestar", "sqlalchemy", "registry.composition.main", "asyncio"}


def test_a_server_loads_no_other_commands() -> None:
    code = "from registry.cli.main import main\ntry: main(['serve', '--help'])\n"
    status = "sys.stderr.write(f' status={end.code}')"
    loaded = loaded_by(f"{code}except SystemExit as end: {TELL}; {status}")
    assert "status=0" in loaded
    assert "registry.cli.server.commands" in loaded
    assert not loaded & {"registry.cli.commands.tags", "registry.cli.commands.completion"}


def test_a_noun_loads_no_other_commands() -> None:
    code = "from registry.cli.main import main\ntry: main(['images', 'list', '--help'])\n"
    loaded = loaded_by(f"{code}except SystemExit: {TELL}")
    assert "registry.cli.commands.images" in loaded
    assert not loaded & {"registry.cli.commands.tags", "registry.cli.server.commands"}


def shows(metrics: str, line: str) -> bool:
    return line in httpx.get(f"http://{metrics}/metrics").text


def test_metrics_are_served_apart(tmp_path: Path) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    registry = start_registry(tmp_path / "data", "--metrics", metrics, "--workers", "2")
    try:
        for _ in range(3):
            httpx.get(f"{registry.url}/v2/")
        assert httpx.get(f"{registry.url}/metrics").status_code == 404
        assert httpx.get(f"{registry.url}/v2/token").status_code == 404  # of `serve` alone
        for answered in (
            'entrepot_http_requests_total{method="GET",plane="data",status_class="2xx"} 3',
            'entrepot_sign_ins_total{door="container client",outcome="refused"} 1.0',
            "entrepot_measured 1.0",
            "entrepot_disk_free_bytes ",
        ):
            # A worker shows its counts to the others at its next tick.
            until(partial(shows, metrics, answered))
    finally:
        registry.stop()


def test_damaged_blobs_are_counted(tmp_path: Path) -> None:
    metrics = f"127.0.0.1:{free_port()}"
    registry = start_registry(tmp_path / "data", "--metrics", metrics, "--workers", "2")
    try:
        digest = f"sha256:{hashlib.sha256(LAYER).hexdigest()}"
        uploads = f"{registry.url}/v2/dev/app/blobs/uploads/"
        assert httpx.post(uploads, params={"digest": digest}, content=LAYER).status_code == 201
        (file,) = (tmp_path / "data" / "blobs" / "objects").glob("*/*")
        file.unlink()
        for _ in range(3):  # it is damaged once
            answer = httpx.get(f"{registry.url}/v2/dev/app/blobs/{digest}")
            assert answer.status_code == 404
        counted = "entrepot_damaged_blobs_total 1.0"
        until(lambda: counted in httpx.get(f"http://{metrics}/metrics").text)
    finally:
        registry.stop()


def test_a_registry_of_tests_is_forked_and_says_where_its_threads_are(tmp_path: Path) -> None:
    registry = start_registry(tmp_path / "data")
    assert isinstance(registry.process, Program)
    assert registry.stop(signal.SIGABRT) == -signal.SIGABRT
    assert "most recent call first" in registry.log
