"""Cloud resource names: ``crn:<service>:<region>:<account>:<type>/<name>``.

A CRN is split at the first four colons, so the name may hold colons and slashes. Regional services
have a region; global ones (identity) leave it empty. Our responses always name the account by id.
Ids, including an account's, are accepted in upper and lower case.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from cloudcore.errors import InvalidInput
from cloudcore.uuids import UUID_PATTERN, parse_uuid

REGION_PATTERN: Final = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
"""What a region may be called. In a CRN it may be empty, too."""

_WORD: Final = re.compile(r"[a-z][a-z0-9-]{0,62}")
_REGION: Final = re.compile(r"[a-z0-9-]{0,63}")
_ACCOUNT: Final = re.compile(r"[a-z0-9-]{1,36}")
_NAME_IN_CRN: Final = re.compile(r"[!-~]{1,3200}")
"""The longest is that of an object: the bucket's, and a key of 1,024 bytes, percent-encoded."""
_PARTS: Final = 5
_IDS: Final = re.compile(rf"(?:\A|(?<=:)|(?<=:user/)|(?<=:organization/)){UUID_PATTERN}(?=:|\Z)")


class Crn(NamedTuple):
    """A parsed resource name."""

    service: str
    region: str
    account: str
    type: str
    name: str

    def __str__(self) -> str:
        return f"crn:{self.service}:{self.region}:{self.account}:{self.type}/{self.name}"

    @classmethod
    def parse(cls, text: str) -> Crn:
        """Parse `text`.

        Raises:
            InvalidInput: it is not a CRN (``reason`` is ``malformed_crn``).

        """
        parts = text.split(":", 4)
        kind, slash, name = parts[-1].partition("/")
        account = parts[3] if len(parts) == _PARTS else ""
        if not _ACCOUNT.fullmatch(account):
            account = parse_uuid(account) or ""
        if (
            len(parts) != _PARTS
            or not slash
            or parts[0] != "crn"
            or not _WORD.fullmatch(parts[1])
            or not _REGION.fullmatch(parts[2])
            or not account
            or not _WORD.fullmatch(kind)
            or not _NAME_IN_CRN.fullmatch(name)
        ):
            raise InvalidInput(
                "a resource name is crn:<service>:<region>:<account>:<type>/<name>",
                reason="malformed_crn",
            )
        return cls(parts[1], parts[2], account, kind, name)


def lower_ids(text: str) -> str:
    """Return an id, a CRN or a pattern of CRNs with its ids in lower case.

    Ids are the account and the part after ``user/`` or ``organization/``; names are unchanged.
    """
    return _IDS.sub(lambda found: found[0].lower(), text)
