"""The bodies of requests and answers about the rules of the pull-through cache."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from cloudcore.resource_names import Uuid
from cloudcore.web.bodies import FaultRecord
from cloudcore.web.pagination import PageMeta
from cloudcore.wire import RFC3339, RequestBody, ResponseBody

UpstreamUrl = Annotated[str, Meta(min_length=8, max_length=1000)]
UpstreamPrefix = Annotated[str, Meta(max_length=200)]
TagTtl = Annotated[int, Meta(ge=60, le=604800)]
NegativeTtl = Annotated[int, Meta(ge=0, le=86400)]
KeepDays = Annotated[int, Meta(ge=1, le=3650)]
MaxBytes = Annotated[int, Meta(ge=1, le=2**60)]


class GivenCredential(RequestBody):
    """What an upstream is asked with."""

    username: Annotated[str, Meta(min_length=1, max_length=255)]
    secret: Annotated[str, Meta(min_length=1, max_length=4096)]
    """A password or an access token; it is never shown again."""


class CreatePullThroughCacheRule(RequestBody):
    """A new rule of the pull-through cache."""

    prefix: Annotated[str, Meta(min_length=1, max_length=200)]
    """One to three parts: ``docker-hub`` caches ``library/alpine`` as
    ``docker-hub/library/alpine``. No repository and no other rule may have names under it."""
    upstream_url: UpstreamUrl
    """The upstream's origin, such as ``https://quay.io``; ``https://docker.io`` is Docker Hub."""
    upstream_prefix: UpstreamPrefix = ""
    """The beginning of the names at the upstream that are left out in the cached names."""
    credential: GivenCredential | None = None
    tag_ttl_seconds: TagTtl = 3600
    """For how long a tag is served without asking the upstream where it points."""
    negative_ttl_seconds: NegativeTtl = 60
    """For how long it is remembered that the upstream does not have something."""
    keep_unpulled_days: KeepDays | None = None
    """Cached images that were not pulled for so many days go; null: they stay."""
    max_bytes: MaxBytes | None = None
    """Above this size of all that is cached, the images go that were pulled longest ago; null:
    there is no limit."""
    enabled: bool = True
    """If false, what is cached is served, and nothing is fetched."""


class UpdatePullThroughCacheRule(RequestBody):
    """The fields to change; a rule's prefix is fixed."""

    upstream_url: UpstreamUrl | UnsetType = UNSET
    """With another upstream, give the credential again, or null."""
    upstream_prefix: UpstreamPrefix | UnsetType | None = UNSET
    credential: GivenCredential | UnsetType | None = UNSET
    tag_ttl_seconds: TagTtl | UnsetType | None = UNSET
    negative_ttl_seconds: NegativeTtl | UnsetType | None = UNSET
    keep_unpulled_days: KeepDays | UnsetType | None = UNSET
    max_bytes: MaxBytes | UnsetType | None = UNSET
    enabled: bool | UnsetType | None = UNSET


class TestPullThroughCacheRule(RequestBody):
    """What to ask the upstream for; by default only whether it answers."""

    repository: Annotated[str, Meta(min_length=1, max_length=210)] | None = None
    """As it is pulled, without the rule's prefix: ``library/alpine``."""
    tag: Annotated[str, Meta(min_length=1, max_length=128)] = "latest"


class ShownCredential(ResponseBody):
    """What an upstream is asked with; the secret is never shown."""

    username: str
    has_secret: bool


class CacheStats(ResponseBody):
    """What a rule has saved since it was created, and what it holds."""

    hits: int
    """Pulls of images that needed no manifest from the upstream."""
    misses: int
    """Pulls for which a manifest was fetched."""
    fetched_bytes: int
    saved_bytes: int
    """Bytes of blobs that clients got and that were not fetched for them."""
    cached_images: int
    cached_bytes: int
    """Distinct blobs of each cached repository, added up."""
    budget_left: int | None
    """Pulls that the upstream still allows, as it last said; null if it does not say."""


class PullThroughCacheRuleAnswer(ResponseBody):
    """A rule of the pull-through cache."""

    id: Uuid
    crn: str
    prefix: str
    uri: str
    """What images are pulled by: host, account handle and prefix, without the image's name."""
    upstream_url: str
    upstream_prefix: str
    credential: ShownCredential | None
    tag_ttl_seconds: int
    negative_ttl_seconds: int
    keep_unpulled_days: int | None
    max_bytes: int | None
    enabled: bool
    stats: CacheStats
    last_success_at: RFC3339 | None
    paused_until: RFC3339 | None
    """When the upstream is asked again; null if it is asked now."""
    faults: Sequence[FaultRecord]
    """Of the last day, the latest first; one for each code."""
    created_at: RFC3339
    updated_at: RFC3339


class OnePullThroughCacheRule(ResponseBody):
    """A rule of the pull-through cache, wrapped."""

    pull_through_cache_rule: PullThroughCacheRuleAnswer


class ManyPullThroughCacheRules(ResponseBody):
    """A page of rules of the pull-through cache."""

    pull_through_cache_rules: Sequence[PullThroughCacheRuleAnswer]
    meta: PageMeta


class UpstreamTest(ResponseBody):
    """How a test of a rule's upstream ended; a failure is an answer, not an error."""

    ok: bool
    stage: Literal["dns", "tls", "auth", "manifest"]
    """How far it came: the name's address, the connection, the token, or the answer."""
    http_status: int | None
    """The status that the upstream answered, or null if it did not."""
    latency_ms: int
    message: str
