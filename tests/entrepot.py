"""The ``entrepot`` command as another process, and an install it has made and serves."""

from __future__ import annotations

import html
import os
import pty
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final, Self

import httpx
import msgspec

from cloudcore.nodes import detached_process
from tests.databases import planted, program
from tests.live import LiveRegistry, start_registry
from tests.loaded import ENTREPOT, program_environment, run_loaded, start_loaded
from tests.postgresql import free_port

ADMIN: Final = "admin@example.org"
PASSWORD: Final = "a password of my own"
_PAGE: Final = re.compile(r"http://\S+/v1/oauth/authorize\?\S+")


@dataclass(frozen=True)
class Home:
    """A person's machine: where the command keeps what it keeps."""

    folder: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def credentials(self) -> Path:
        return self.folder / "entrepot" / "credentials.json"

    @property
    def environ(self) -> dict[str, str]:
        environ = program_environment() | {"XDG_CONFIG_HOME": str(self.folder)}
        for name in ("ENTREPOT_CREDENTIALS", "BROWSER", "DISPLAY", "WAYLAND_DISPLAY"):
            environ.pop(name, None)
        return {**environ, **self.environment}

    def run(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """Run the command to its end; it never shows a traceback."""
        ended = run_loaded(ENTREPOT, arguments, self.environ, stdin)
        assert "Traceback" not in ended.stderr
        return ended

    def stored(self) -> dict[str, Any]:
        """Return what the credentials file holds."""
        return dict(msgspec.json.decode(self.credentials.read_bytes()))

    def expire(self, url: str, *tokens: str) -> None:
        """Let tokens have ended by this machine's clock, as time does."""
        stored = self.stored()
        for token in tokens:
            stored[url][token]["expires_at"] = 1
        self.credentials.write_bytes(msgspec.json.encode(stored))


class AtTerminal:
    """A command whose input and messages are a person's terminal, or its output too."""

    def __init__(self, home: Home, *words: str, shows_output: bool = False) -> None:
        self._controller, terminal = pty.openpty()
        self._process = subprocess.Popen(
            program("registry", *words),
            stdin=terminal,
            stdout=terminal if shows_output else subprocess.PIPE,
            stderr=terminal,
            env=home.environ,
            start_new_session=True,
        )
        os.close(terminal)
        self.shown = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        os.close(self._controller)

    def type(self, text: str, after: bytes) -> None:
        """Type a line when something is shown."""
        self.see(after)
        os.write(self._controller, f"{text}\n".encode())

    def see(self, text: bytes) -> None:
        """Wait until something is shown."""
        while text not in self.shown:
            self.shown += os.read(self._controller, 4096)

    def ended(self) -> tuple[int, bytes]:
        """Return the status at the end, and what was printed elsewhere than on the terminal."""
        if self._process.stdout is None:
            with suppress(OSError):  # the other end is closed
                while read := os.read(self._controller, 4096):
                    self.shown += read
        printed, _ = self._process.communicate(timeout=60)
        return self._process.returncode, printed or b""


class Waiting:
    """A login that has shown its page, and waits for the code."""

    def __init__(self, home: Home, *arguments: str) -> None:
        given, typed = os.pipe()
        shown, told = os.pipe()
        self._stdin, self._stdout = os.fdopen(typed, "w"), os.fdopen(shown)
        self._stderr = tempfile.TemporaryFile("w+")  # noqa: SIM115 - until the end
        try:
            streams = (given, told, self._stderr.fileno())
            self._process = start_loaded(ENTREPOT, ("login", *arguments), home.environ, streams)
        finally:
            os.close(given)
            os.close(told)
        self.shown = ""
        self.page = self.next_page()

    def next_page(self) -> str:
        """Return the next page that the command shows."""
        while line := self._stdout.readline():
            self.shown += line
            if found := _PAGE.search(line):
                return found[0]
        raise AssertionError(self.shown)

    def give(self, code: str) -> subprocess.CompletedProcess[str]:
        """Paste the code, and return how the command ended."""
        return self._ended(f"{code}\n")

    def wait(self) -> subprocess.CompletedProcess[str]:
        """Paste nothing, and return how the command ended by itself."""
        return self._ended("")

    def interrupt(self) -> subprocess.CompletedProcess[str]:
        """Press Ctrl+C, and return how the command ended."""
        self._process.send_signal(signal.SIGINT)
        return self._ended("")

    def _ended(self, typed: str) -> subprocess.CompletedProcess[str]:
        with suppress(BrokenPipeError), self._stdin:  # it may have ended
            self._stdin.write(typed)
        with self._stdout, self._stderr:
            shown = self.shown + self._stdout.read()
            status = self._process.wait(60)
            self._stderr.seek(0)
            told = self._stderr.read()
        assert "Traceback" not in told
        return subprocess.CompletedProcess([], status, shown, told)


@dataclass(frozen=True)
class Install:
    """A served registry, and what ``entrepot init`` showed once."""

    registry: LiveRegistry
    url: str
    one_time_password: str
    access_key_id: str
    secret: str

    def sign_in_by_key(self, home: Home, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Sign the admin's service account in."""
        pair = ("--access-key-id", self.access_key_id)
        return home.run("login", self.url, *pair, *arguments, stdin=f"{self.secret}\n")

    def sign_in_by_page(self, home: Home, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Sign the admin in, with a page that is fetched as a browser does."""
        waiting = Waiting(home, self.url, *arguments)
        return waiting.give(fetch_code(waiting.page, PASSWORD))

    def status(self, access_token: str) -> int:
        """Return how the control plane answers a token."""
        headers = {"Authorization": f"Bearer {access_token}"}
        return httpx.get(f"{self.url}/v1/repositories", headers=headers, timeout=60).status_code


@contextmanager
def installed(data: Path, made: str = "", **environment: str) -> Iterator[Install]:
    """Make an install as its operator does, and serve it meanwhile, with these variables set.

    With what `copied_install` has shown, it is that one.
    """
    port = free_port()
    made = made or initialized(
        data if "ENTREPOT_DATABASE_URL" in environment else planted(data), environment
    )
    registry = start_registry(
        data, "--port", str(port), command="serve", env=environment, timeout=60
    )
    try:
        yield Install(
            registry,
            registry.url,
            told("one-time password", made),
            told("access key id", made),
            told("secret access key", made),
        )
    finally:
        stopped = registry.stop()
        end_kept(data)
        assert stopped == 0, registry.log
    assert '"level":"error"' not in registry.log.replace(" ", "")


def end_kept(data: Path) -> None:
    """End the proxies of load balancers and the database servers, which outlive the service."""
    for folder in (*data.glob("nodes/*/balancers/*/*"), *data.glob("nodes/*/databases/*")):
        kept = detached_process.find(folder)
        if kept is not None:
            kept.signal(signal.SIGKILL)


@cache
def _made_once() -> tuple[bytes, bytes, str]:
    """Return database and root key of an install, and what `entrepot init` has shown of it."""
    with tempfile.TemporaryDirectory() as folder:
        data = planted(Path(folder) / "data")
        shown = initialized(data)
        return (data / "metadata.db").read_bytes(), (data / "root.key").read_bytes(), shown


def copied_install(data: Path) -> str:
    """Make a data folder of what `initialized` has made once, and return what that has shown.

    To make one takes more than a second. All copies have one root key and the same credentials.
    """
    database, key, shown = _made_once()
    data.mkdir(mode=0o700, parents=True)
    for name, content in (("metadata.db", database), ("root.key", key)):
        (data / name).write_bytes(content)
        (data / name).chmod(0o600)
    return shown


def initialized(data: Path, env: Mapping[str, str] | None = None, *, account: str = "acme") -> str:
    """Run ``entrepot init`` over a folder with these settings alone; return what it shows."""
    ours = {k: v for k, v in program_environment().items() if not k.startswith("ENTREPOT_")}
    words = ("init", "--account", account, "--admin-email", ADMIN, "--data", str(data))
    ended = run_loaded(ENTREPOT, words, {**ours, **(env or {})})
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def told(label: str, shown: str) -> str:
    """Return what stands after a label of ``entrepot init``."""
    (value,) = re.findall(rf"^  {label} +(\S+)$", shown, re.MULTILINE)
    return str(value)


def fetch_code(page: str, password: str, new_password: str = "", *, email: str = ADMIN) -> str:
    """Sign in on a page, choosing a new password if one is given, and return the code."""
    shown = sign_in_on(page, password, new_password, email=email)
    found = re.search(r'<output id="code">([^<]*)<', shown.text)
    assert found, shown.text
    return found[1]


def sign_in_on(
    page: str, password: str, new_password: str = "", *, email: str = ADMIN
) -> httpx.Response:
    """Sign in on a page, choosing a new password if one is given; return the last answer."""
    endpoint = page.partition("?")[0]
    with httpx.Client(timeout=60) as browser:
        shown = browser.get(page)
        fields = {"email": email, "password": password}
        shown = browser.post(endpoint, data={"form": _hidden(shown.text), **fields})
        if new_password:
            fields = {"new_password": new_password, "repeated_password": new_password}
            shown = browser.post(endpoint, data={"form": _hidden(shown.text), **fields})
    return shown


def _hidden(page: str) -> str:
    found = re.search(r'name="form" value="([^"]*)"', page)
    assert found, page
    return html.unescape(found[1])


def mode_of(path: Path) -> int:
    """Return the permission bits of a file."""
    return path.stat().st_mode & 0o777
