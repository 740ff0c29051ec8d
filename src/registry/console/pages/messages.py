"""Messages of email, with what became of each recipient."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cloudcore.email import resources
from registry.console.described_nouns import noun_of
from registry.console.noun_pages import Column

_OF: Final = noun_of(resources.MESSAGE)
_FROM: Final = Column("From", "from")
MESSAGE: Final = replace(
    _OF,
    label="subject",
    columns=(_FROM, *(each for each in _OF.columns if each.field != "subject")),
    facts=(
        _FROM,
        *(each for each in _OF.facts if each.field != "subject"),
        Column("Template", "template", "reference"),
    ),
    parts="noun_message.html",
)
