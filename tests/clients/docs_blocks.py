"""The settings that a page of the documentation gives for other programs."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tests.clients.docs_shell import substituted
from tests.databases import ROOT


def block_of(page: str, kind: str, having: str, words: Sequence[tuple[str, str]]) -> str:
    """Return the one block of this kind that has this text, its words replaced by the test's."""
    blocks = re.findall(rf"^```{kind}\n(.*?)^```$", (ROOT / page).read_text(), re.DOTALL | re.M)
    (found,) = (block for block in blocks if having in block)
    return substituted(found, words)
