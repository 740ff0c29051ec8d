"""The ``sh`` blocks of the documentation, and a shell that runs them one command after another."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.databases import ROOT

_BLOCK: Final = re.compile(r"^( *)```sh\n(.*?)^ *```$", re.DOTALL | re.MULTILINE)
_MARK: Final = "@@ended"


def commands_of(page: str) -> list[str]:
    """Return the commands of a page's ``sh`` blocks, in order, comments left out."""
    found = []
    for indent, block in _BLOCK.findall((ROOT / page).read_text()):
        command = ""
        for line in block.splitlines():
            command += line.removeprefix(indent) + "\n"
            if is_whole(command):
                if strip_comments(command):
                    found.append(strip_comments(command))
                command = ""
        assert not command, f"{page}: {command}"
    return found


def is_whole(text: str) -> bool:
    """Return True if a shell would run the text, not ask for another line."""
    if re.search(r"(\\|\|)\n$", text):
        return False
    checked = subprocess.run(
        ["bash", "-n"], input=text, text=True, capture_output=True, check=False
    )
    return checked.returncode == 0 and "here-document" not in checked.stderr


def strip_comments(command: str) -> str:
    """Return a command without the comment at the end of its lines."""
    return re.sub(r"(^|\s+)# .*$", "", command, flags=re.MULTILINE).strip()


@dataclass
class Shell:
    """A shell that keeps its folder and variables between commands."""

    process: subprocess.Popen[str]
    folder: Path
    done: list[str] = field(default_factory=list)

    def run(self, command: str, stdin: str = "") -> str:
        """Run a command, which must succeed, and return what it printed on either output."""
        given = self.folder / "stdin"
        said = self.folder / "said"
        given.write_text(stdin)
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        files = f"<{shlex.quote(str(given))} >{shlex.quote(str(said))} 2>&1"
        self.process.stdin.write(f"{{ {command}\n}} {files}; echo {_MARK} $?\n")
        self.process.stdin.flush()
        ended = self.process.stdout.readline().split()
        text = said.read_text()
        assert ended == [_MARK, "0"], f"{command}\nfailed: {ended}\n{text}"
        self.done.append(command)
        return text


@contextmanager
def shell(folder: Path, environment: Mapping[str, str]) -> Iterator[Shell]:
    """Start a shell in a folder, in which a pipe fails with any of its programs."""
    work = folder / "work"
    work.mkdir()
    process = subprocess.Popen(
        ["bash", "--norc", "-s"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=work,
        env=dict(environment),
    )
    started = Shell(process, folder)
    try:
        started.run("set -o pipefail")
        # A page's request that is refused is a failure, also where the page leaves `-f` out.
        started.run(
            'curl() { case $1 in -sSf) ;; *) set -- -sS --fail-with-body "$@" ;; esac; '
            'command curl "$@"; }'
        )
        yield started
    finally:
        process.kill()
        process.communicate()


def write_program(folder: Path, name: str, *lines: str) -> None:
    """Write a script into a folder of programs."""
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text("\n".join(("#!/bin/sh", *lines, "")))
    path.chmod(0o755)


def substituted(command: str, words: Sequence[tuple[str, str]]) -> str:
    """Return a command with the words of the documentation replaced by those of the test."""
    for written, meant in words:
        command = command.replace(written, meant)
    return command
