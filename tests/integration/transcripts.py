"""Golden tables of commands: files that read like a shell's screen, and are played against it.

A case begins with ``## its title``. ``$ queues list`` is a command of the machine that is signed
in, ``owner$`` one of the person who owns the install, and any other word names a machine of the
case that has yet to sign in; ``operator$`` runs a command on the registry's own machine. Variables
may stand before a command, as in a shell. ``started$`` is such a command in a process of its own,
with what that logs. ``push$ REPOSITORY [TAG]`` pushes an image and prints its digest, ``person$
MACHINE EMAIL PASSWORD NEW ROLE`` signs a person in, and ``program$ MACHINE ACTIONS RESOURCE`` a
service account that may do no more. ``blob$ REPOSITORY SIZE`` pushes a blob, ``pulls$ DIGEST
REPOSITORY`` prints how the registry answers for it, ``admits$ PASSWORD`` how it answers a container
client, ``owe$ MONTHS STATUS ATTEMPTS`` puts in an invoice of so many months before October 2026,
``sql$`` changes or reads the database, ``sh$`` is a shell, and ``day$`` lets a day pass for
garbage. After ``|`` stand the fields of the JSON to print, after ``<`` what the standard input
holds, and after ``>`` the file of the case to write to.

The settings of an install of the file's own stand in its second line, after ``settings:``; with
``each`` among them, every case has one.

Below a command stands what it prints, the blanks between cells made one, then each line of the
standard error after ``!``, and a status that is not 0 in brackets, before the error if that is one
line. ``…`` is any text within a line and ``...`` any number of lines. ``<id>`` is one word, and the
same from there on, also in commands; ``<id.short>`` is a digest as tables show it. ``+ queues
create jobs`` succeeds whatever it prints, and ``[3]$ queues show none`` ends with that status.
"""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from cloudcore.clock import MICROSECONDS
from tests.conformance.content import blob
from tests.entrepot import ADMIN, Home
from tests.integration.cli_world import JSON, Ended, World
from tests.owed_invoices import OCTOBER, owe

FOLDER: Final = Path(__file__).parent / "commands"
_COMMAND: Final = re.compile(
    r"(\w*)(?:\[(\d)\])?([$+]) (.*?)(?: \| ([\w. ]+))?(?: < (.*))?(?: > (\S+))?"
)
_VARIABLE: Final = re.compile(r"[A-Z_]+=")
_SETTINGS: Final = re.compile(r"^settings: (.*)$", re.MULTILINE)
_MONTH: Final = 31 * 86_400_000_000
_FAILED: Final = re.compile(r"\[\d\]")
_NAME: Final = re.compile(r"<(\w+(?:\.short)?)>")


class Case(NamedTuple):
    """A part of a file that is played by itself."""

    title: str
    lines: list[str]
    settings: tuple[str, ...] = ()
    """Of the install: ``NAME=value``; ``each`` if no other case has it."""


def cases() -> Iterator[Case]:
    """Yield the cases of all files."""
    for file in sorted(FOLDER.glob("*.txt")):
        head, *parts = file.read_text().split("\n## ")
        settings = tuple(" ".join(_SETTINGS.findall(head)).split())
        for part in parts:
            title, *lines = part.splitlines()
            shown = [line for line in lines if line and not line.startswith("# ")]
            yield Case(f"{file.stem}: {title}", shown, settings)


class Golden:
    """Compares lines with golden ones, and learns the words that they name."""

    known: dict[str, str]

    def _after(self, expected: str, printed: list[str]) -> list[str]:
        """Return the lines after the first one that is as expected."""
        pattern = self._pattern([expected])
        for number, each in enumerate(printed, 1):
            if found := re.fullmatch(pattern, f"{each}\n"):
                self.known |= found.groupdict()
                return printed[number:]
        raise AssertionError(f"no line is {expected}")

    def _filled(self, text: str) -> str:
        return _NAME.sub(lambda found: self._value(found[1]), text)

    def _value(self, name: str) -> str:
        value = self.known[name.removesuffix(".short")]
        return value.removeprefix("sha256:")[:12] if name.endswith(".short") else value

    def _pattern(self, expected: list[str]) -> str:
        seen: set[str] = set()

        def word(name: str) -> str:
            if name.removesuffix(".short") in self.known:
                return re.escape(self._value(name))
            if name in seen:
                return f"(?P={name})"
            seen.add(name)
            return rf"(?P<{name}>[^\s';]+)"

        def line(text: str) -> str:
            if text == "...":
                return "(?:.*\n)*?"
            parts = _NAME.split(text)
            literal = [re.escape(each).replace("…", ".*") for each in parts[::2]]
            names = [word(each) for each in parts[1::2]]
            return "".join(a + b for a, b in zip(literal, [*names, ""], strict=True)) + "\n"

        return "".join(map(line, expected))


@dataclass
class Player(Golden):
    """Plays a case; names of its own begin with `n`, the value of ``<n>``."""

    world: World
    owner: Callable[[], Home]
    folder: Path
    known: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.known |= {
            "n": f"n-{uuid4().hex[:12]}",
            "nobody": str(uuid4()),
            "url": self.world.install.url,
            "host": self.world.host,
            "admin": ADMIN,
            "folder": str(self.folder),
            "data": str(self.world.install.registry.data),
        }

    def play(self, lines: list[str]) -> None:
        """Run the commands, and compare what each prints with what stands below it."""
        while lines:
            line, rest = lines[0], lines[1:]
            shown = _COMMAND.fullmatch(line)
            assert shown is not None, f"no command: {line}"
            expected = list(takewhile(lambda each: not _COMMAND.fullmatch(each), rest))
            machine, status, kind, *asked = shown.groups(default="")
            printed = self._run(machine, *asked)
            rest = rest[len(expected) :]
            if kind == "+":
                expected = ["..."]
                assert not printed or not _FAILED.match(printed[-1]), (line, printed)
            elif status:
                expected = ["...", f"[{status}]…"]
            found = re.fullmatch(self._pattern(expected), "".join(f"{each}\n" for each in printed))
            assert found, "\n".join((self._filled(line), *printed, "instead of", *expected))
            self.known |= found.groupdict()
            lines = rest

    def _run(self, machine: str, command: str, fields: str, given: str, file: str) -> list[str]:
        if machine == "sql":
            return self._query(self._filled(command))
        if machine == "sh":
            shell = ["sh", "-c", self._filled(command)]
            return subprocess.run(
                shell, check=False, capture_output=True, text=True
            ).stdout.splitlines()
        words = shlex.split(self._filled(command))
        if hasattr(self, f"_{machine}_"):
            return [*getattr(self, f"_{machine}_")(*words)]
        environment = dict(each.split("=", 1) for each in takewhile(_VARIABLE.match, words))
        words = words[len(environment) :]
        if machine in ("operator", "started"):
            words += ["--data", self.known["data"]]
        if machine == "started":
            alone = self.world.home.run(*words)
            ended = Ended(alone.returncode, alone.stdout.encode(), alone.stderr)
        else:
            ended = self.world.run(
                *words,
                *(JSON if fields else ()),
                stdin=self._filled(given).replace("\\n", "\n") + "\n" if given else "",
                home=self._home(machine, environment),
            )
        if file:
            (self.folder / file).write_bytes(ended.out)
            return _complaints(ended)
        printed = _selected(ended, fields.split()) if fields else ended.lines
        return [*filter(None, printed), *_complaints(ended)]

    def _query(self, statement: str) -> list[str]:
        database = self.world.install.registry.data / "metadata.db"
        with closing(sqlite3.connect(database, timeout=30)) as raw, raw:
            return [" ".join(map(str, row)) for row in raw.execute(statement)]

    def _push_(self, repository: str, tag: str | None = None) -> Iterator[str]:
        yield self.world.push(repository, tag)

    def _blob_(self, repository: str, size: str) -> Iterator[str]:
        yield self.world.registry[f"acme/{repository}"].push_blob(blob(int(size))).digest

    def _pulls_(self, digest: str, repository: str) -> Iterator[str]:
        yield str(self.world.registry[f"acme/{repository}"].get_blob(digest).status_code)

    def _admits_(self, password: str) -> Iterator[str]:
        yield "yes" if self.world.admits(password) else "no"

    def _day_(self, _passes: str) -> list[str]:
        for column in (
            "repository_blobs SET touched_at = touched_at",
            "blob_objects SET condemned_at = condemned_at",
            "quarantined_objects SET swept_at = swept_at",
        ):
            self._query(f"UPDATE {column} - {24 * 3600 * MICROSECONDS}")
        return []

    def _owe_(self, months: str, status: str, attempts: str) -> Iterator[str]:
        database = self.world.install.registry.data / "metadata.db"
        with closing(sqlite3.connect(database, timeout=30)) as raw:
            yield owe(raw, OCTOBER - int(months) * _MONTH, status, int(attempts))

    def _person_(self, name: str, email: str, given: str, new: str, role: str = "") -> list[str]:
        home = Home(self.folder / name)
        self.world.sign_in_person(home, email, given, new, role=role)
        return []

    def _program_(self, name: str, actions: str, resource: str) -> list[str]:
        rights = {"effect": "allow", "actions": actions.split(","), "resources": [resource]}
        self.world.sign_in(Home(self.folder / name), rights)
        return []

    def _home(self, machine: str, environment: Mapping[str, str]) -> Home:
        own = {"": self.world.home, "operator": self.world.home}
        home = self.owner() if machine == "owner" else own.get(machine)
        return Home(self.folder / machine if home is None else home.folder, environment)


def _selected(ended: Ended, fields: list[str]) -> list[str]:
    """Return a line for each record that was printed, with these fields."""
    document = json.loads(ended.out) if ended.out else []
    records = document if isinstance(document, list) else [document]
    return [" ".join(_text(_at(record, each)) for each in fields) for record in records]


def _at(record: Any, path: str) -> Any:  # noqa: ANN401 - JSON
    for name in path.split("."):
        record = record[int(name) if isinstance(record, list) else name]
    return record


def _text(value: Any) -> str:  # noqa: ANN401 - JSON
    return value if isinstance(value, str) else json.dumps(value)


def _complaints(ended: Ended) -> list[str]:
    told = [line.removeprefix("entrepot: ") for line in ended.err.splitlines()]
    if ended.status and len(told) == 1:
        return [f"[{ended.status}] {told[0]}"]
    return [*(f"! {line}" for line in told), *([f"[{ended.status}]"] if ended.status else [])]
