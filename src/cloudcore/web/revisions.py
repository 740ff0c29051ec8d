"""Change a document only if it is unchanged since it was read: revisions and entity tags.

Source: RFC 9110 §13.
"""

from __future__ import annotations

import re
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from cloudcore.errors import Conflict

_ENTITY_TAG: Final = re.compile(r'(W/)?"([^"]*)"')


def tags_named(header: str, *, strongly: bool = False) -> frozenset[str]:
    """Return the entity tags that a header lists, without their quotes; ``*`` yields ``*``.

    With `strongly`, for ``If-Match``, weak entity tags are left out (§13.1.1).
    """
    if header.strip() == "*":
        return frozenset({"*"})
    tags = _ENTITY_TAG.findall(header)
    return frozenset(tag for weak, tag in tags if tag != "*" and not (strongly and weak))


Revision = Annotated[
    int,
    Meta(
        ge=0,
        description="Only if the policy still has this revision; 0: only if there is none."
        " Else the answer is 409.",
    ),
]


class RevisionQuery(msgspec.Struct):
    """The query parameters of a change that depends on a revision."""

    revision: Revision | None = None


def require_revision(found: int, wanted: int | None) -> None:
    """Check that a policy has the revision `wanted`, unless that is None; 0 means no policy.

    Raise `Conflict`, with the policy's ``revision``, if the policy has another one.
    """
    if wanted is not None and found != wanted:
        now = f"it has revision {found} now, not {wanted}" if found else "it was deleted"
        raise Conflict(
            f"the policy was changed by someone else: {now}; read it again", revision=found
        )
