"""The HTTP client of upstream registries.

Responses are untrusted: the bytes read are limited, a digest in a header is only a claim, and a
response in an unrequested encoding is refused.
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Final
from urllib.parse import quote

from cloudcore.clock import Clock
from cloudcore.outbound.http_client import HttpAnswer, HttpClient
from cloudcore.outbound.http_connection import AnswerTooLong, RequestFailed
from registry.oci.digest import Digest, digest_of
from registry.oci.manifest import MAX_BYTES
from registry.oci.media_types import ACCEPT_MANIFESTS, OCI_INDEX
from registry.upstream import lists, response_headers
from registry.upstream.base import (
    BlobStream,
    FetchedManifest,
    HiddenUpstream,
    ListedTags,
    ManifestHead,
    NotUpstream,
    Remote,
    UpstreamBroken,
    UpstreamFailed,
    UpstreamObserver,
    UpstreamRefused,
    UpstreamUnreachable,
)
from registry.upstream.request import ANSWER_SECONDS, Exchange, Request
from registry.upstream.response_headers import failure_of, origin_name

_ACCEPT_MANIFESTS: Final = {"Accept": ACCEPT_MANIFESTS}
_OK: Final = frozenset({200})
_NOT_MODIFIED: Final = 304
_WHOLE_OR_PART: Final = frozenset({200, 206})
_NO_SUCH_API: Final = frozenset({400, 404, 405, 406, 501})
_NOT_ALLOWED: Final = 405
_BAD_REQUEST: Final = 400
_ACCEPT_JSON: Final = {"Accept": "application/json"}
_REFUSED_ELSEWHERE: Final = (401, 403)
_PAGES: Final = ("text/html", "application/xhtml+xml")
_MANIFEST_TYPE_PREFIX: Final = "application/vnd."
"""Prefix of the media types of manifests; storage behind a redirect sends other types."""
MAX_LIST_SECONDS: Final = 30
"""Seconds after which no further page of referrers is requested."""
MAX_PAGES: Final = 20
"""Maximum number of pages of referrers that are read."""


class RegistryClient:
    """Sends requests to upstream registries; one per process.

    Every method raises `NotUpstream` if the upstream lacks the content, or a kind of
    `UpstreamFailed`.
    """

    def __init__(
        self,
        http: HttpClient,
        clock: Clock,
        watch: UpstreamObserver,
        answer_seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._exchange = Exchange(http, clock, answer_seconds)
        self._watch = watch

    async def ping(self, remote: Remote) -> int:
        """Request ``/v2/``, with a token if the upstream wants one; return the last status.

        This is sent even while requests to the upstream are paused.
        """
        await self._check_lock(remote)
        request = Request("GET", "/v2/", {}, "", _OK)
        with suppress(UpstreamFailed):
            await self._watch.check(remote)  # reads the state, so that a success ends a pause
        try:
            async with self._exchange.ask(remote, request) as answer:
                status = answer.head.status
        except NotUpstream as error:
            failure = UpstreamBroken(f"{origin_name(remote.origin)} is no registry: it has no /v2/")
            failure.http_status = 404
            raise failure from error
        except UpstreamBroken as error:
            if error.http_status not in _REFUSED_ELSEWHERE:
                raise
            return error.http_status  # of a redirect's target, which wants a token with a scope
        await self._watch.succeeded(remote, None)
        return status

    async def head_manifest(
        self, remote: Remote, reference: str | Digest, known_etag: str | None = None
    ) -> ManifestHead | None:
        """Return the headers of a manifest; None if it still has the ETag `known_etag`.

        If the upstream does not support HEAD, use GET.
        """
        headers, expected = dict(_ACCEPT_MANIFESTS), _OK | {_NOT_ALLOWED}
        if known_etag is not None and response_headers.is_etag(known_etag):
            headers["If-None-Match"] = known_etag
            expected |= {_NOT_MODIFIED}
        path = _path(remote, "manifests", reference)
        async with self._asked(remote, "HEAD", path, headers, expected) as answer:
            status = answer.head.status
            if status == 200:
                return ManifestHead(
                    response_headers.content_digest(answer.head), response_headers.etag(answer.head)
                )
        if status != _NOT_ALLOWED:
            return None
        fetched = await self.get_manifest(remote, reference)
        return ManifestHead(digest_of(fetched.body), fetched.etag)

    async def get_manifest(self, remote: Remote, reference: str | Digest) -> FetchedManifest:
        """Return a manifest, of at most `oci.manifest.MAX_BYTES`.

        The bytes match the digests in the request and in the response's headers, if any; otherwise
        raise `UpstreamBroken`.
        """
        path = _path(remote, "manifests", reference)
        async with self._asked(remote, "GET", path, _ACCEPT_MANIFESTS, _OK) as answer:
            body = await self._body(remote, answer)
            media_type = response_headers.media_type(answer.head)
            if media_type in _PAGES:
                raise self._broken(remote, f"answered with {media_type} for a manifest")
            if media_type is not None and not media_type.startswith(_MANIFEST_TYPE_PREFIX):
                media_type = None  # the manifest itself states its type
            asked = reference if isinstance(reference, Digest) else None
            for digest in (asked, response_headers.content_digest(answer.head)):
                if digest is not None and digest_of(body, digest.algorithm) != digest:
                    raise self._broken(remote, "sent a manifest that is not the one of its digest")
            return FetchedManifest(body, media_type, response_headers.etag(answer.head))

    async def get_referrers(self, remote: Remote, subject: Digest) -> bytes | None:
        """Return the index of a manifest's referrers; None if the upstream has no referrers API."""
        first = _path(remote, "referrers", subject)
        path: str | None = first
        pages: list[bytes] = []
        began = time.monotonic()
        while path is not None:
            if time.monotonic() - began > MAX_LIST_SECONDS:
                failure = UpstreamUnreachable(
                    f"{origin_name(remote.origin)} is too slow to list referrers"
                )
                await self._watch.failed(remote, failure)
                raise failure
            if len(pages) >= MAX_PAGES or sum(map(len, pages)) > MAX_BYTES:
                raise self._broken(remote, "has too many referrers, or pages of them")
            expected = _OK if pages else _OK | _NO_SUCH_API
            async with self._asked(remote, "GET", path, {"Accept": OCI_INDEX}, expected) as answer:
                if (
                    answer.head.status != 200
                    or response_headers.media_type(answer.head) != OCI_INDEX
                ):
                    return None
                pages.append(await self._body(remote, answer))
                path = None
                with suppress(lists.RefusedLink):
                    path = lists.next_page(answer.head, remote.origin, first)
        try:
            return lists.join_pages(pages)
        except lists.RefusedPage as error:
            raise self._broken(remote, str(error)) from None

    async def list_tags(self, remote: Remote) -> ListedTags:
        """Return the tags of the repository, up to a maximum number.

        Raise `NotUpstream` if the upstream lists no tags.
        """
        first = _path(remote, "tags", "list")
        path: str | None = f"{first}?n={lists.PAGE_SIZE}"
        pages = lists.TagPages()
        while path is not None and not pages.is_full:
            expected = _OK if pages.count else _OK | _NO_SUCH_API - {404}
            async with self._asked(remote, "GET", path, _ACCEPT_JSON, expected) as answer:
                status = answer.head.status
                if status == 200:
                    try:
                        pages.add(await answer.read(MAX_BYTES))
                    except AnswerTooLong:
                        pages.cut()
                    except RequestFailed as error:
                        raise failure_of(origin_name(remote.origin), error) from None
                    except lists.BadTagPage as error:
                        raise self._broken(remote, str(error)) from None
            if status == 200:
                try:
                    path = lists.next_page(answer.head, remote.origin, first)
                except lists.RefusedLink:
                    pages.cut()
            elif status == _BAD_REQUEST and path != first:
                path = first  # the upstream refuses pages of this size
            else:
                raise NotUpstream(f"{origin_name(remote.origin)} lists no tags (status {status})")
        return pages.listed(is_whole=path is None)

    async def head_blob(self, remote: Remote, digest: Digest) -> int | None:
        """Return the size of a blob, or None if the upstream does not state it."""
        path = _path(remote, "blobs", digest)
        async with self._asked(remote, "HEAD", path, {}, _OK) as answer:
            return None if response_headers.is_encoded(answer.head) else answer.head.length

    @asynccontextmanager
    async def open_blob(
        self, remote: Remote, digest: Digest, start: int = 0
    ) -> AsyncIterator[BlobStream]:
        """Request a blob from the offset `start` on; the end of the block ends the request."""
        headers = {"Range": f"bytes={start}-"} if start else {}
        expected = _WHOLE_OR_PART if start else _OK
        path = _path(remote, "blobs", digest)
        async with self._asked(remote, "GET", path, headers, expected) as answer:
            if response_headers.is_encoded(answer.head):
                raise self._broken(remote, "sent a blob in an encoding that was not asked for")
            first, size = 0, answer.head.length
            if answer.head.status == 206:
                first, size = self._part(remote, answer, start)
            wanted = None if size is None else size - first
            async with aclosing(self._chunks(remote, answer, wanted)) as chunks:
                yield BlobStream(first, size, chunks)

    def _part(self, remote: Remote, answer: HttpAnswer, start: int) -> tuple[int, int | None]:
        """Return the start of a partial response, and the blob's size (None if unknown).

        Raise `UpstreamBroken` if the response is not the rest of the blob from `start`.
        """
        part = response_headers.content_range(answer.head)
        length = answer.head.length
        if part is None or part.first != start:
            raise self._broken(remote, "sent another part of a blob than asked for")
        if part.size is not None and part.last != part.size - 1:
            raise self._broken(remote, "sent less of a blob than asked for")
        if length is not None and length != part.last - part.first + 1:
            raise self._broken(remote, "sent a part of a blob with two lengths")
        return part.first, part.size

    async def _chunks(
        self, remote: Remote, answer: HttpAnswer, wanted: int | None
    ) -> AsyncGenerator[bytes, None]:
        received = 0
        try:
            async with aclosing(answer.chunks()) as chunks:
                async for chunk in chunks:
                    received += len(chunk)
                    if wanted is not None and received > wanted:
                        raise self._broken(remote, "sent more of a blob than it said")
                    yield chunk
            if wanted is not None and received < wanted:
                raise self._broken(remote, "sent less of a blob than it said")
        except RequestFailed as error:
            raise failure_of(origin_name(remote.origin), error) from None

    @asynccontextmanager
    async def _asked(
        self,
        remote: Remote,
        method: str,
        path: str,
        headers: Mapping[str, str],
        expected: frozenset[int],
    ) -> AsyncIterator[HttpAnswer]:
        """Send a request, unless requests are paused, and record how the upstream responded.

        Failures that the block raises about the response are recorded too.
        """
        await self._check_lock(remote)
        await self._watch.check(remote)
        scope = f"repository:{remote.repository}:pull"
        opened = self._exchange.ask(remote, Request(method, path, headers, scope, expected))
        try:
            answer = await opened.__aenter__()
        except NotUpstream:
            await self._watch.succeeded(remote._replace(repository=""), None)
            raise
        except UpstreamFailed as failure:
            if isinstance(failure, UpstreamRefused) and self._is_hidden(remote, path, failure):
                await self._watch.succeeded(remote._replace(repository=""), None)
                hidden = HiddenUpstream(str(failure))
                hidden.http_status = failure.http_status or hidden.http_status
                raise hidden from None
            await self._watch.failed(remote, failure)
            raise
        try:
            yield answer
        except UpstreamFailed as failure:
            await self._watch.failed(remote, failure)
            raise
        else:  # a head alone is no success: its body may be too slow, or break off
            await self._watch.succeeded(remote, response_headers.rate_limit(answer.head))
        finally:
            await opened.__aexit__(None, None, None)

    def _is_hidden(self, remote: Remote, path: str, refused: UpstreamRefused) -> bool:
        """Return True if a refusal is about the repository, not the credential.

        A refusal that may be about either counts as the repository's if no credential was sent, or
        if the upstream recently accepted the credential for another repository. For a list of tags,
        acceptance for the same repository counts too: listing may need more rights than a pull.
        """
        if not refused.is_of_repository or remote.credential is None:
            return refused.is_of_repository
        return self._watch.is_accepted(
            remote, elsewhere=not path.partition("?")[0].endswith("/tags/list")
        )

    async def _check_lock(self, remote: Remote) -> None:
        """Raise UpstreamRefused, and record it, if the rule's credential cannot be opened."""
        if remote.is_locked:
            failure = UpstreamRefused(
                "the rule's secret was sealed under another root key; give it again"
            )
            await self._watch.failed(remote, failure)
            raise failure

    async def _body(self, remote: Remote, answer: HttpAnswer) -> bytes:
        try:
            if response_headers.is_encoded(answer.head):
                raise self._broken(remote, "answered in an encoding that was not asked for")
            return await answer.read(MAX_BYTES)
        except RequestFailed as error:
            raise failure_of(origin_name(remote.origin), error) from None

    def _broken(self, remote: Remote, words: str) -> UpstreamBroken:
        return UpstreamBroken(f"{origin_name(remote.origin)} {words}")


def _path(remote: Remote, kind: str, reference: str) -> str:
    return f"/v2/{quote(remote.repository)}/{kind}/{quote(reference, safe=':+')}"
