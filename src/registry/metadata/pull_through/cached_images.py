"""The cached content of a rule: its blobs, and its images by last pull."""

from __future__ import annotations

from typing import Final, NamedTuple

from sqlalchemy import bindparam, exists, func, literal_column, or_, select

from cloudcore.db.base import Connection
from cloudcore.db.rows import ONE, count, find_all, find_one, given, total
from cloudcore.db.statement import Statement, paged
from registry.metadata.blobs.objects import LINKS_OF_DIGEST, Link
from registry.metadata.control_tables import PIN_HOLDS, image_pins
from registry.metadata.pull_through.cache_rule import CacheRule
from registry.metadata.pull_through.tables import pull_through_cache_rules
from registry.metadata.repositories.repository import PULL_THROUGH_CACHE
from registry.metadata.tables import manifest_children, manifests, repositories

_m = manifests.c
_p = image_pins.c
_r = pull_through_cache_rules.c
_repository = repositories.c
_RETENTIONS: Final = select(
    _r.id, _r.account_id, _r.region, _r.prefix, _r.keep_unpulled_days, _r.max_bytes
)
_ALL: Final = Statement(
    _RETENTIONS.where(or_(_r.keep_unpulled_days.is_not(None), _r.max_bytes.is_not(None))).order_by(
        _r.id
    )
)
_FIND: Final = Statement(_RETENTIONS.where(_r.id == bindparam("rule_id")))
_OF_RULE: Final = (
    given(_repository.account_id),
    _repository.source == literal_column("'pull_through_cache'"),
    _repository.deleted_at.is_(None),
    _repository.name > bindparam("first"),
    _repository.name < bindparam("last"),
)
_BYTES: Final = Statement(select(total(_repository.size_bytes)).where(*_OF_RULE))
_BYTES_OF_ONE: Final = Statement(select(_repository.size_bytes).where(given(_repository.id)))
_LINKS: Final = paged(
    LINKS_OF_DIGEST.where(
        given(_repository.source),
        _repository.created_at >= bindparam("since"),
        _repository.name >= bindparam("first"),
        _repository.name < bindparam("last"),
    )
)


class Retention(NamedTuple):
    """The limits of age and size for the cached images of a rule."""

    rule_id: str
    account_id: str
    region: str
    prefix: str
    keep_unpulled_days: int | None
    max_bytes: int | None


class CachedImage(NamedTuple):
    """An image of a cached repository."""

    id: str
    repository_id: str
    digest: str


_used_at = func.coalesce(_m.last_pulled_at, _m.pushed_at)


_UNNEEDED: Final = select(_m.id, _m.repository_id, _m.digest).where(
    _used_at < bindparam("before"),
    or_(_m.restored_at.is_(None), _m.restored_at < bindparam("before")),
    ~exists(select(ONE).where(manifest_children.c.child_id == _m.id).correlate(manifests)),
    ~exists(
        select(ONE)
        .where(_p.manifest_id == _m.id, _p.repository_id == _m.repository_id, PIN_HOLDS)
        .correlate(manifests)
    ),
)
"""Images unused since ``:before`` that no index lists and no pin protects."""
_OLDEST: Final = paged(
    _UNNEEDED.join(repositories, _repository.id == _m.repository_id)
    .where(*_OF_RULE)
    .order_by(_used_at, _m.id)
)
_STILL: Final = Statement(_UNNEEDED.where(given(_m.id)))


def list_retentions(tx: Connection) -> list[Retention]:
    """Return the limits of all rules that limit age or size."""
    return find_all(tx, Retention, _ALL)


def find_retention(tx: Connection, rule_id: str) -> Retention | None:
    """Return the limits of a rule, or None if it was deleted."""
    return find_one(tx, Retention, _FIND, rule_id=rule_id)


def cached_bytes(tx: Connection, rule: Retention) -> int:
    """Return the bytes that a rule has cached: the distinct blobs of each repository, added up."""
    return count(tx, _BYTES, **_names(rule))


def repository_bytes(tx: Connection, repository_id: str) -> int:
    """Return the bytes of a repository's distinct blobs."""
    return count(tx, _BYTES_OF_ONE, id=repository_id)


def oldest_images(
    tx: Connection, rule: Retention, before: int, now: int, limit: int
) -> list[CachedImage]:
    """Return up to `limit` of a rule's images that were not used since `before`, oldest first.

    An image is used when it is pulled, cached or restored. Images that an index lists or that are
    pinned are left out.
    """
    return find_all(tx, CachedImage, _OLDEST, **_names(rule), before=before, now=now, limit=limit)


def is_still_unneeded(tx: Connection, image: CachedImage, before: int, now: int) -> bool:
    """Return True if the image is still unused since `before`, unlisted and unpinned."""
    return tx.row(_STILL, id=image.id, before=before, now=now) is not None


def _names(rule: Retention | CacheRule) -> dict[str, str]:
    # In byte order, "0" comes next to "/".
    return {"account_id": rule.account_id, "first": f"{rule.prefix}/", "last": f"{rule.prefix}0"}


def links_of_rule(tx: Connection, rule: CacheRule, digest: str, limit: int) -> list[Link]:
    """Return up to `limit` links of a blob, by sha256 digest, in the repositories of a rule.

    Nobody has pushed to these repositories: the cache created them under this rule. Repositories
    left by an earlier rule with this prefix are left out, since clients may have pushed to them
    between the two rules.
    """
    of = _names(rule) | {"digest": digest, "source": PULL_THROUGH_CACHE}
    rows = tx.rows(_LINKS, **of, since=rule.created_at, limit=limit)
    return [Link(*row[1:]) for row in rows]
