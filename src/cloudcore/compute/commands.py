"""``entrepot instance-pools`` and ``entrepot instances``."""

from __future__ import annotations

import sys
from io import TextIOWrapper
from tempfile import TemporaryFile
from typing import Final
from urllib.parse import urlencode

from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Noun, Option
from cloudcore.compute.instance_pool import INSTANCE_POOL
from cloudcore.resources.commands import noun_of

_CHUNK: Final = 65_536
POOLS: Final = noun_of(
    INSTANCE_POOL,
    words="images of this registry that are kept running",
    created="{name} is {status}; 'entrepot instances list {name}' shows what runs",
    delete_words="end all instances of a pool, and delete it",
    question="End all instances of {name}, and delete it?",
)


def _write_logs(run: Invocation) -> None:
    """Write the output of an instance's program unchanged; to a terminal, as printable text."""
    query = urlencode({"tail": run.values["tail"]}) if "tail" in run.values else ""
    with TemporaryFile() as file:
        run.client.receive_file(f"{run.path}/logs{query and '?'}{query}", file)
        file.seek(0)
        if sys.stdout.isatty():
            # Control sequences in it must not reach the reader's terminal.
            with TextIOWrapper(file, "utf-8", "backslashreplace") as text:
                while words := text.read(_CHUNK):
                    sys.stdout.write("".join(map(_readable, words)))
        else:
            while part := file.read(_CHUNK):
                sys.stdout.buffer.write(part)
    sys.stdout.flush()


def _readable(character: str) -> str:
    if character.isprintable() or character in "\n\t":
        return character
    return character.encode("unicode_escape").decode()


INSTANCES: Final = Noun(
    noun="instances",
    words="what runs of an instance pool",
    parent=POOLS,
    name="id",
    columns=(
        "id",
        "status",
        "address",
        Cell("RESTARTS", "restarts", "number"),
        Cell("EXIT", "exit_code"),
        "started_at",
        "node",
    ),
    commands=(
        Command(
            verb="logs",
            words="write what its program wrote: the last 10 MB",
            options=(Option("tail", "only so many bytes at the end", "count", is_query=True),),
            run=_write_logs,
        ),
    ),
)
COMMANDS: Final = (POOLS, INSTANCES)
