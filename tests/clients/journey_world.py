"""An install as its operator runs it, people and programs at their own machines, steps counted."""

from __future__ import annotations

import json
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx

from cloudcore.clock import MICROSECONDS
from tests.clients.archives import write_layout
from tests.clients.containers import Containers
from tests.clients.images import Image, Store
from tests.clients.programs import attempt
from tests.entrepot import Home, Waiting, copied_install, end_kept, sign_in_on, told
from tests.live import LiveRegistry, start_registry
from tests.postgresql import free_port

HOUR: Final = 3600 * MICROSECONDS
_MOMENTS: Final = (
    ("manifests", "pushed_at"),
    ("tags", "created_at"),
    ("tags", "updated_at"),
    ("tag_events", "occurred_at"),
)
_REDIRECTED: Final = (200, 302, 303)


@dataclass
class Steps:
    """What a person does on a journey; what a test does only to look is not counted."""

    journey: str
    done: list[str] = field(default_factory=list)
    forms: int = 0
    """Forms sent in a browser."""
    prompts: int = 0
    """Secrets typed or pasted into a command."""

    @property
    def commands(self) -> int:
        """Return how many commands were typed."""
        return len(self.done)

    def check(self, commands: int, forms: int = 0, prompts: int = 0) -> None:
        """Print the journey as a table, and check its length."""
        rows = [f"{n:>3}  {' '.join(each.split())}" for n, each in enumerate(self.done, 1)]
        counted = f"{self.commands} commands, {self.forms} forms, {self.prompts} prompts"
        print(f"\n{self.journey}: {counted}", *rows, sep="\n")  # noqa: T201 - shown by pytest -s
        assert (self.commands, self.forms, self.prompts) == (commands, forms, prompts)


@dataclass
class Operator:
    """The machine of the registry: its data, and the server that runs there."""

    data: Path
    port: int
    made: str
    """What ``entrepot init`` showed."""
    registry: LiveRegistry
    environment: Mapping[str, str] = field(default_factory=dict)
    """Settings of the server."""

    @property
    def url(self) -> str:
        """Return where clients reach it."""
        return f"http://{self.host}"

    @property
    def host(self) -> str:
        """Return host and port, as clients name the registry."""
        return f"127.0.0.1:{self.port}"

    @property
    def home(self) -> Home:
        """Return the operator's own home, in which nobody is signed in."""
        return Home(self.data.parent / "operator")

    def stop(self) -> None:
        """Stop the server, which has failed at nothing."""
        assert self.registry.stop() == 0, self.registry.log
        lines = self.registry.log.splitlines()
        assert [line for line in lines if '"level":"error"' in line.replace(" ", "")] == []

    def serve(self) -> None:
        """Start the server again."""
        self.registry = _served(self.data, self.port, self.environment)

    def run(self, steps: Steps, *arguments: str) -> str:
        """Run a command on this machine, which must succeed; return what it printed."""
        steps.done.append(f"entrepot {' '.join(arguments)} --data DATA")
        ended = self.home.run(*arguments, "--data", str(self.data))
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def pass_hours(self, hours: int) -> None:
        """Let every image have been pushed and tagged earlier, as time does."""
        with closing(sqlite3.connect(self.data / "metadata.db", timeout=30)) as database, database:
            for table, column in _MOMENTS:
                database.execute(f"UPDATE {table} SET {column} = {column} - ?", (hours * HOUR,))


class Machine:
    """Somebody's own machine: the command, and the clients of the containers family."""

    def __init__(self, folder: Path, operator: Operator, **environment: str) -> None:
        folder.mkdir()
        self.operator = operator
        self.folder = folder
        self.clients = Containers(folder / "home", operator.host)
        self.home = Home(folder, {**self.clients.environment, **environment})
        self._images = 0

    def run(self, steps: Steps | None, *arguments: str, stdin: str = "") -> str:
        """Run ``entrepot``, which must succeed; return what it printed."""
        if steps is not None:
            steps.done.append(f"entrepot {' '.join(arguments)}")
            steps.prompts += stdin.count("\n")
        ended = self.home.run(*arguments, stdin=stdin)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def read(self, steps: Steps | None, *arguments: str) -> Any:  # noqa: ANN401 - as printed
        """Return the document that a command prints."""
        return json.loads(self.run(steps, *arguments, "--output", "json"))

    def refused(self, *arguments: str) -> str:
        """Run ``entrepot``, which must be refused; return why."""
        ended = self.home.run(*arguments)
        assert ended.returncode in {1, 3, 4}, ended.stdout + ended.stderr
        return ended.stderr

    def sign_in(self, steps: Steps, email: str, one_time_password: str, password: str) -> str:
        """Sign a person and skopeo in, choosing a password on the page; return what was printed."""
        steps.forms += 2
        return self.sign_in_by(
            steps, lambda page: sign_in_on(page, one_time_password, password, email=email)
        )

    def sign_in_by(self, steps: Steps, browse: Callable[[str], httpx.Response]) -> str:
        """Sign a person and skopeo in by a browser, given the page; return what was printed."""
        steps.done.append("entrepot login URL --docker --client skopeo")
        waiting = Waiting(self.home, self.operator.url, "--docker", "--client", "skopeo")
        shown = browse(waiting.page)
        assert shown.status_code in _REDIRECTED, shown.text
        code = shown.text.partition('<output id="code">')[2].partition("<")[0]
        ended = waiting.give(code)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout

    def image(self, word: str) -> Image:
        """Return an image of its own."""
        self._images += 1
        return Store(self.folder / f"content-{self._images}").image([{"word": word.encode()}])

    def push(
        self, steps: Steps | None, name: str, image: Image
    ) -> subprocess.CompletedProcess[str]:
        """Push an image, or be refused."""
        layout = image.store.blobs.parent.with_name(f"layout-{self._images}")
        if not layout.exists():
            write_layout(image, layout)
        if steps is not None:
            steps.done.append(f"skopeo copy IMAGE docker://HOST/acme/{name}")
        target = f"docker://{self.operator.host}/acme/{name}"
        return self.clients.attempt("skopeo", "copy", f"oci:{layout}:latest", target)

    def pushed(self, steps: Steps | None, name: str, word: str) -> str:
        """Push an image of its own, which must succeed, and return its digest."""
        image = self.image(word)
        ended = self.push(steps, name, image)
        assert ended.returncode == 0, ended.stderr
        return image.digest

    def pull(
        self, steps: Steps | None, name: str, *options: str
    ) -> subprocess.CompletedProcess[str]:
        """Pull an image with all its layers, or be refused."""
        if steps is not None:
            steps.done.append(f"skopeo copy {' '.join(options)} docker://HOST/acme/{name} FOLDER")
        target = self.folder / "pulled"
        shutil.rmtree(target, ignore_errors=True)
        source = f"docker://{self.operator.host}/acme/{name}"
        return attempt(
            "skopeo", "copy", *options, source, f"dir:{target}", env=self.clients.environment
        )


@contextmanager
def operated(folder: Path, **environment: str) -> Iterator[Operator]:
    """Make an install, and serve it on one port meanwhile, with these variables set."""
    port = free_port()
    data = folder / "data"
    made = copied_install(data)
    operator = Operator(data, port, made, _served(data, port, environment), environment)
    try:
        yield operator
    finally:
        operator.stop()
        end_kept(data)


def first_password(operator: Operator) -> str:
    """Return the one-time password that ``entrepot init`` showed."""
    return told("one-time password", operator.made)


def _served(data: Path, port: int, environment: Mapping[str, str]) -> LiveRegistry:
    return start_registry(data, "--port", str(port), command="serve", env=environment)
