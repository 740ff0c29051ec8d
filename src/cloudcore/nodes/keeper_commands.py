"""Programs that a keeper runs and waits for."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence


class CommandFailed(Exception):
    """A program failed; the message is the last line that it wrote."""


def run(*argv: str, text: str = "", pass_fds: Sequence[int] = ()) -> None:
    """Run a program, which reads `text`; raise `CommandFailed` if it fails."""
    ended = subprocess.run(  # noqa: S603 - named by the keeper and its driver
        argv,
        input=text.encode(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        pass_fds=pass_fds,
        check=False,
    )
    if ended.returncode:
        lines = ended.stderr.decode(errors="replace").strip().splitlines()
        raise CommandFailed(lines[-1] if lines else f"{argv[0]} ended with {ended.returncode}")
