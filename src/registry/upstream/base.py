"""What upstream registries are asked with, what they answer, and how they fail.

Answers of an upstream are untrusted: the caller checks bytes against their digest before it stores
them.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal, NamedTuple, Protocol

from registry.oci.digest import Digest

UpstreamStage = Literal["dns", "tls", "auth", "manifest"]
"""The stage that a request reached: its address, its connection, its token, or its answer."""


class UpstreamFailed(Exception):
    """An upstream gave no usable answer; the message says why, as a sentence without secrets."""

    stage: UpstreamStage = "manifest"
    """Where it failed."""
    http_status: int | None = None
    """The status of the answer, or None if there was none."""


class UpstreamUnreachable(UpstreamFailed):
    """The request failed by DNS, address, TLS or connection, or timed out."""

    stage: UpstreamStage = "tls"


class UpstreamRefused(UpstreamFailed):
    """The upstream refused the credential (401, 403)."""

    stage: UpstreamStage = "auth"
    is_of_repository: bool = False
    """True if it may have refused the repository alone, and taken the credential."""


class UpstreamLimited(UpstreamFailed):
    """No request may be sent before `retry_at` (429, or the budget that this install keeps)."""

    def __init__(self, message: str, retry_at: int) -> None:
        super().__init__(message)
        self.retry_at = retry_at
        """Microseconds since the epoch."""


class UpstreamBroken(UpstreamFailed):
    """The answer is not one of a registry: an HTML page, a wrong length, an endless body, a 5xx."""


class NotUpstream(Exception):
    """The upstream does not have the content (404)."""


class HiddenUpstream(NotUpstream):
    """The upstream does not have the content, or hides it: a 401 may mean both.

    Docker Hub and Quay give everybody a token, and refuse it for a repository that does not exist.
    GHCR and others give none for it.
    """

    http_status: int = 401


class Credential(NamedTuple):
    """The name and secret that an upstream is asked with."""

    username: str
    secret: str

    def __repr__(self) -> str:
        return f"Credential(username={self.username!r})"


class Remote(NamedTuple):
    """A repository of an upstream, and the rule under which it is asked."""

    rule_id: str
    origin: str
    """``https://host[:port]``, as the rule names it."""
    repository: str
    """The name at the upstream, with the rule's upstream prefix."""
    credential: Credential | None
    is_locked: bool = False
    """True if its credential cannot be opened: then it is not asked."""


class ManifestHead(NamedTuple):
    """The headers of a manifest, without its bytes."""

    digest: Digest | None
    """None if the upstream does not tell."""
    etag: str | None


class FetchedManifest(NamedTuple):
    """A manifest as an upstream sent it."""

    body: bytes
    media_type: str | None
    etag: str | None


class BlobStream(NamedTuple):
    """A blob that an upstream is sending."""

    start: int
    """Offset of the first byte that comes: 0 if the upstream ignores ranges."""
    size: int | None
    """Length of the whole blob; None if the upstream does not state it."""
    chunks: AsyncIterator[bytes]
    """The bytes; raises UpstreamUnreachable or UpstreamBroken if they end early or too late."""


class ListedTags(NamedTuple):
    """The tags of a repository, as an upstream lists them."""

    names: list[str]
    """Valid tags, each once."""
    is_whole: bool
    """False if there are more than are read."""


class RateLimit(NamedTuple):
    """A rate limit as an upstream states it, such as ``ratelimit-remaining: 76;w=21600``."""

    limit: int | None
    remaining: int
    window_seconds: int | None


class UpstreamObserver(Protocol):
    """Records how upstreams answer; all workers share its state."""

    async def check(self, remote: Remote) -> None:
        """Return if the upstream may be asked now.

        Raise `UpstreamLimited` if it wants no requests until a later time, `UpstreamUnreachable` if
        it failed a moment ago.
        """

    async def succeeded(self, remote: Remote, rate: RateLimit | None) -> None:
        """Record that an upstream answered as a registry does."""

    async def failed(self, remote: Remote, failure: UpstreamFailed) -> None:
        """Record that an upstream did not answer as a registry does."""

    def is_accepted(self, remote: Remote, *, elsewhere: bool) -> bool:
        """Return True if its credential was accepted within the hour; `elsewhere`, for another one.

        The caller has just called `check`.
        """
