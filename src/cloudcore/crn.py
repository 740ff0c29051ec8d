"""Cloud resource names: ``crn:<service>:<region>:<account>:<type>/<name>`` (part 2, F).

Split on the first four colons, so the name may hold colons and slashes. Regional services name
their region; global ones (identity) leave it empty. What we put out always names the account by id.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from cloudcore.errors import InvalidInput

_WORD: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
_REGION: Final = re.compile(r"[a-z0-9-]{0,63}")
_ACCOUNT: Final = re.compile(r"[a-z0-9-]{1,36}")
_NAME: Final = re.compile(r"[!-~]{1,512}")


class Crn(NamedTuple):
    """A resource name taken apart."""

    service: str
    region: str
    account: str
    type: str
    name: str

    def __str__(self) -> str:
        return f"crn:{self.service}:{self.region}:{self.account}:{self.type}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> Crn:
        """Return `text` taken apart.

        Raises:
            InvalidInput: it is no CRN (``reason`` is ``malformed_crn``).

        """
        parts = text.split(":", 4)
        kind, slash, name = parts[-1].partition("/")
        if (
            len(parts) != 5
            or not slash
            or parts[0] != "crn"
            or not _WORD.fullmatch(parts[1])
            or not _REGION.fullmatch(parts[2])
            or not _ACCOUNT.fullmatch(parts[3])
            or not _WORD.fullmatch(kind)
            or not _NAME.fullmatch(name)
        ):
            raise InvalidInput(
                "a resource name is crn:<service>:<region>:<account>:<type>/<name>",
                reason="malformed_crn",
            )
        return cls(parts[1], parts[2], parts[3], kind, name)
