"""The kernel and the families beside the registry speak of no registry."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import cloudcore

WORDS: Final = re.compile(
    r"regist(?:ry|ries)|repositor|manifest|\bblobs?\b|docker|\boci\b|\bpull|\bpush", re.IGNORECASE
)
SPARED: Final = (
    "JWSRegistry",  # names of other libraries
    *("registry=_REGISTRIES", "_REGISTRIES", "CollectorRegistry", "HeaderRegistry"),
    *("email.headerregistry", "self._registry"),
    "self.push(",  # aiosmtpd's: an answer of a mail server
    "independent of the registry",
    "auto_create_repositories",  # a field of /v1/accounts, promised to its clients
)

OF_ROOMS: Final = {
    "databases": re.compile(r"repositor|manifest|push", re.IGNORECASE)  # pgBackRest and PostgreSQL
}
"""What other programs call what is theirs, by the room that drives them."""


def is_of_command(file: Path) -> bool:
    """Return True for what a family says on the command line, which speaks of the whole product."""
    return file.name == "commands.py" or file.parent.name == "commands"


def test_the_kernel_knows_no_word_of_the_registry() -> None:
    found = []
    root = Path(cloudcore.__path__[0])
    for file in sorted(each for each in root.rglob("*.py") if not is_of_command(each)):
        for number, line in enumerate(file.read_text().splitlines(), 1):
            rest = line
            for spared in SPARED:
                rest = rest.replace(spared, "")
            for room in OF_ROOMS.keys() & set(file.parts):
                rest = OF_ROOMS[room].sub("", rest)
            if WORDS.search(rest):
                found.append(f"{file.name}:{number}: {line.strip()}")
    assert found == []
