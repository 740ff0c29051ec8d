"""Change a document only if it still has the revision that was read."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from cloudcore.errors import Conflict

Revision = Annotated[
    int,
    Meta(
        ge=0,
        description="Only if the policy still has this revision; 0: only if there is none."
        " Else the answer is 409.",
    ),
]


class RevisionQuery(msgspec.Struct):
    """The condition of a change."""

    revision: Revision | None = None


def require_revision(found: int, wanted: int | None) -> None:
    """Check that a policy has the revision `wanted`, if that is given; 0 stands for no policy.

    Raises:
        Conflict: it has another one; with the ``revision`` that it has.

    """
    if wanted is not None and found != wanted:
        now = f"it has revision {found} now, not {wanted}" if found else "it was deleted"
        raise Conflict(
            f"the policy was changed by someone else: {now}; read it again", revision=found
        )
