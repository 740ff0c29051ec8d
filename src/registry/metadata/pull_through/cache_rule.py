"""A rule of the pull-through cache (`CacheRule`), which maps names to an upstream."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta

from cloudcore.resources.resource import Record, Resource, fixed, given, own


class CacheRule(Record, frozen=True, kw_only=True):
    """A rule of an account: repositories under `prefix` cache those of an upstream."""

    prefix: Annotated[str, Meta(min_length=1, max_length=200), fixed()]
    """One to three parts: ``docker-hub`` caches ``library/alpine`` as
    ``docker-hub/library/alpine``. No repository and no other rule may have names under it."""
    upstream_url: Annotated[str, Meta(min_length=8, max_length=1000), given()]
    """The upstream's origin, such as ``https://quay.io``; ``https://docker.io`` is Docker Hub."""
    upstream_prefix: Annotated[str, Meta(max_length=200), given()] = ""
    """The beginning of the names at the upstream that are left out in the cached names, without a
    slash at its end."""
    username: Annotated[str | None, own(hidden=True)] = None
    secret_sealed: Annotated[bytes | None, own(hidden=True)] = None
    tag_ttl_seconds: Annotated[int, Meta(ge=60, le=604800), given()] = 3600
    """For how long a tag is served without asking the upstream where it points."""
    negative_ttl_seconds: Annotated[int, Meta(ge=0, le=86400), given()] = 60
    """For how long it is remembered that the upstream does not have something."""
    keep_unpulled_days: Annotated[
        Annotated[int, Meta(ge=1, le=3650)] | None, given(shows_null=True)
    ] = None
    """Cached images that were not pulled for so many days go; null: they stay."""
    max_bytes: Annotated[Annotated[int, Meta(ge=1, le=2**60)] | None, given(shows_null=True)] = None
    """Limit of all that is cached: above it, the images that were pulled longest ago are deleted;
    null for no limit."""
    enabled: Annotated[bool, given()] = True
    """If false, what is cached is served, and nothing is fetched."""
    last_success_at: Annotated[int | None, own(form="time", shows_null=True)] = None


CACHE_RULE: Final = Resource(
    record=CacheRule,
    service="registry",
    one="pull_through_cache_rule",
    many="pull_through_cache_rules",
    words="pull-through cache rule",
    key="prefix",
    is_queried_in_all_regions=True,
    quota=50,
    # By hand: answers have the state of the upstream and the totals of what is cached.
    methods=(),
    actions={
        "create": "CreatePullThroughCacheRule",
        "list": "DescribePullThroughCacheRules",
        "update": "UpdatePullThroughCacheRule",
        "delete": "DeletePullThroughCacheRule",
    },
    more_actions=("TestPullThroughCacheRule",),
    summaries={
        "registry:DescribePullThroughCacheRules": "List pull-through cache rules with what they"
        " saved and their faults."
    },
    methods_with_events=(),
)
