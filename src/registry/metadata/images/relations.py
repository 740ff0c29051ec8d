"""What stands around the images of a page: what is attached to them, and which indexes list them.

Each is a bounded range of an index for each image.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from sqlalchemy import bindparam, func, select

from cloudcore.db.base import Connection
from cloudcore.db.statement import Statement, listed, page, text_list
from registry.metadata.tables import digest_aliases, manifest_children, manifests, tags

_m = manifests.c
_t = tags.c
_a = digest_aliases.c
_c = manifest_children.c

_ATTACHED: Final = Statement(
    page(
        select(func.coalesce(_m.artifact_type, _m.media_type))
        .where(
            _m.repository_id == bindparam("repository_id"),
            _m.subject_digest == bindparam("subject"),
            _m.subject_digest.is_not(None),  # so that the partial index applies
        )
        .order_by(_m.id.desc())
    )
)
_ALIASES: Final = Statement(
    select(_a.alias, _a.digest).where(
        _a.account_id == bindparam("account_id"), _a.digest.in_(listed("digests"))
    )
)
_NAMED: Final = Statement(
    select(_t.name).where(
        _t.repository_id == bindparam("repository_id"), _t.name.in_(listed("names"))
    )
)
_LISTING: Final = Statement(
    page(
        select(_m.digest)
        .join(manifest_children, _c.parent_id == _m.id)
        .where(_m.repository_id == bindparam("repository_id"), _c.child_id == bindparam("child_id"))
    )
)


def attached_types(
    tx: Connection, repository_id: str, account_id: str, digests: Sequence[str], most: int
) -> dict[str, list[str]]:
    """Return the artifact types of the newest referrers of each image, `most` at most, sorted.

    The images are given by their sha256; those without a referrer are left out.
    """
    aliases = tx.rows(_ALIASES, account_id=account_id, digests=text_list(digests))
    subjects = [(digest, digest) for digest in digests] + [(row[0], row[1]) for row in aliases]
    found: defaultdict[str, set[str]] = defaultdict(set)
    for subject, digest in subjects:
        rows = tx.rows(_ATTACHED, repository_id=repository_id, subject=subject, limit=most)
        if rows:
            found[digest] |= {row[0] for row in rows}
    return {digest: sorted(types) for digest, types in found.items()}


def existing_tags(tx: Connection, repository_id: str, names: Sequence[str]) -> set[str]:
    """Return those of the names that are tags of the repository."""
    rows = tx.rows(_NAMED, repository_id=repository_id, names=text_list(names))
    return {row[0] for row in rows}


def indexes_listing(tx: Connection, repository_id: str, image_id: str, most: int) -> list[str]:
    """Return the digests of the indexes that list an image, `most` at most, sorted."""
    rows = tx.rows(_LISTING, repository_id=repository_id, child_id=image_id, limit=most)
    return sorted(row[0] for row in rows)
