"""The inputs, results and failures of requests to upstream registries.

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
    """The stage at which the request failed."""
    http_status: int | None = None
    """The status of the answer, or None if there was none."""


class UpstreamUnreachable(UpstreamFailed):
    """DNS, TLS or the connection failed, the address is not allowed, or the request timed out."""

    stage: UpstreamStage = "tls"


class UpstreamRefused(UpstreamFailed):
    """The upstream refused the credential (401, 403)."""

    stage: UpstreamStage = "auth"
    is_of_repository: bool = False
    """True if the upstream may have accepted the credential, and refused only the repository."""


class UpstreamLimited(UpstreamFailed):
    """No request may be sent before `retry_at` (a 429, or this install's own budget)."""

    def __init__(self, message: str, retry_at: int) -> None:
        super().__init__(message)
        self.retry_at = retry_at
        """Microseconds since the epoch."""


class UpstreamBroken(UpstreamFailed):
    """The response is no registry's: an HTML page, a wrong length, an endless body, a 5xx."""


class NotUpstream(Exception):
    """The upstream does not have the content (404)."""


class HiddenUpstream(NotUpstream):
    """The upstream lacks the content, or hides it: a 401 may mean either.

    For a repository that does not exist, Docker Hub and Quay issue a token and then refuse it; GHCR
    and others issue none.
    """

    http_status: int = 401


class Credential(NamedTuple):
    """The user name and secret to send to an upstream."""

    username: str
    secret: str

    def __repr__(self) -> str:
        return f"Credential(username={self.username!r})"


class Remote(NamedTuple):
    """A repository of an upstream, and the cache rule for which it is fetched."""

    rule_id: str
    origin: str
    """``https://host[:port]``, as the rule names it."""
    repository: str
    """The name at the upstream, with the rule's upstream prefix."""
    credential: Credential | None
    is_locked: bool = False
    """True if the credential cannot be decrypted; then no requests are sent."""


class ManifestHead(NamedTuple):
    """The result of a HEAD request for a manifest."""

    digest: Digest | None
    """None if the upstream does not state it."""
    etag: str | None


class FetchedManifest(NamedTuple):
    """A manifest as an upstream sent it."""

    body: bytes
    media_type: str | None
    etag: str | None


class BlobStream(NamedTuple):
    """A blob that an upstream is just sending."""

    start: int
    """Offset of the first byte that comes: 0 if the upstream ignores ranges."""
    size: int | None
    """Length of the whole blob; None if the upstream does not state it."""
    chunks: AsyncIterator[bytes]
    """The bytes. Iterating raises UpstreamUnreachable if the connection fails, UpstreamBroken if
    there are fewer or more bytes than the upstream stated."""


class ListedTags(NamedTuple):
    """A repository's tags, as an upstream lists them."""

    names: list[str]
    """Valid tags, each once."""
    is_whole: bool
    """False if the upstream has more tags than were read."""


class RateLimit(NamedTuple):
    """A rate limit as an upstream states it, such as ``ratelimit-remaining: 76;w=21600``."""

    limit: int | None
    remaining: int
    window_seconds: int | None


class UpstreamObserver(Protocol):
    """Records how upstreams respond; all workers share the recorded states."""

    async def check(self, remote: Remote) -> None:
        """Check that a request may be sent to the upstream now.

        Raise `UpstreamLimited` while the upstream wants no requests, `UpstreamUnreachable` if the
        upstream has just failed several times in a row.
        """

    async def succeeded(self, remote: Remote, rate: RateLimit | None) -> None:
        """Record that an upstream gave a usable answer, even one that the content is missing."""

    async def failed(self, remote: Remote, failure: UpstreamFailed) -> None:
        """Record that an upstream could not be reached, or gave no usable answer."""

    def is_accepted(self, remote: Remote, *, elsewhere: bool) -> bool:
        """Return True if the upstream has accepted the credential within the last hour.

        With `elsewhere`, only acceptance for another repository counts. Call `check` first.
        """
