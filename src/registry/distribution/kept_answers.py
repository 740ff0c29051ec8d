"""Reusable responses of the data plane, each with the read that proves it is still right.

A proof names a read of the services, whose result and the request determine the response. If one
read can prove many responses at once, the proof names that read, too. No response outlives the
bearer token of its request.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.serving.asgi import Scope
from cloudcore.serving.kept_answers import EXTENSION, MOST_ANSWER_BYTES, AnswerProof, KeepTerms
from registry.distribution.request import DataPlaneRequest
from registry.errors import TokenRequired
from registry.metadata.blobs.link_states import link_state_of
from registry.metadata.images.manifests import StoredManifest
from registry.oci.digest import Digest
from registry.services.blobs import reading
from registry.services.blobs.reading import FoundBlob
from registry.services.context import ServiceContext
from registry.services.images import manifests
from registry.services.tags.pointers import read_revision

MOST_SECONDS: Final = 300
"""Maximum seconds for which the response to a request without a bearer token is kept."""


def kept_manifest(
    ctx: ServiceContext, request: DataPlaneRequest, reference: str | Digest, found: StoredManifest
) -> KeepTerms | None:
    """Return how the response to a manifest pull may be reused; None if it may not.

    The response for a tag of a cached repository may be reused while the tag is fresh, but never a
    response with an ``Age`` header.
    """
    if not request.may_keep or len(found.body) > MOST_ANSWER_BYTES or found.stale_since is not None:
        return None
    until = _until(ctx, request)
    if found.fresh_until is not None:
        until = min(until, found.fresh_until)
    given, seen = (request.name, reference), manifests.state_of(found)
    # Besides the tags and images of the repository, an answer may depend on whether a cached tag is
    # fresh or, for a digest of another algorithm, on the digests of the content in the account.
    by_tag = not isinstance(reference, Digest) and found.fresh_until is None
    revision = read_revision if by_tag or reference == found.digest else None
    proof = AnswerProof(manifests.read_manifest_state, given, seen, revision)
    counts = not request.is_head and request.grant.counts_pulls
    return KeepTerms(until, proof, partial(ctx.pulls.note, found.id) if counts else None)


def kept_blob(
    ctx: ServiceContext, request: DataPlaneRequest, digest: Digest, found: FoundBlob
) -> KeepTerms | None:
    """Return how the response for an undamaged inline blob may be reused; None if it may not."""
    link, is_head = found.link, request.is_head
    if not request.may_keep or not link.is_inline or link.damage is not None:
        return None
    many = reading.read_blob_states if digest == link.digest else None
    given, seen = (request.name, digest), link_state_of(link)
    proof = AnswerProof(reading.read_blob_state, given, seen, read_many=many)
    until = reading.kept_until(ctx, found, keep=is_head)
    ends = _until(ctx, request)
    return KeepTerms(ends if until is None else min(ends, until), proof)


async def kept_list(
    ctx: ServiceContext, request: DataPlaneRequest, look: Callable[..., Hashable], *given: Hashable
) -> KeepTerms | None:
    """Return how a list page may be reused; None if it may not. Call this before reading it.

    `look`, called with the repository's name and `given`, is the read that proves the page.
    """
    if not request.may_keep:
        return None
    found = await ctx.database.read(look, request.name, *given)
    return KeepTerms(_until(ctx, request), AnswerProof(look, (request.name, *given), found))


def kept_greeting(ctx: ServiceContext, request: DataPlaneRequest) -> KeepTerms | None:
    """Return how the response to a ping with a valid credential may be reused, or None."""
    return KeepTerms(_until(ctx, request)) if request.may_keep else None


def kept_challenge(ctx: ServiceContext, scope: Scope, error: Exception) -> KeepTerms | None:
    """Return how a 401 may be reused: only the challenge to a client without a credential.

    Return None for any other error. The challenge depends only on the settings and the request.
    """
    if EXTENSION not in scope.get("extensions", ()) or not isinstance(error, TokenRequired):
        return None
    if any(name == b"authorization" for name, _ in scope["headers"]):
        return None
    return KeepTerms(ctx.clock() + MOST_SECONDS * MICROSECONDS)


def _until(ctx: ServiceContext, request: DataPlaneRequest) -> int:
    expires_at = request.grant.expires_at
    return ctx.clock() + MOST_SECONDS * MICROSECONDS if expires_at is None else expires_at
