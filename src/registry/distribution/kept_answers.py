"""Which answers of the data plane the server may give again, and what proves each of them.

A proof is a read of a row or two. Each is a function of the services, and finds all that the
handler's answer depends on besides the request. No answer outlives the bearer that it was asked
with.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Final

from cloudcore.clock import MICROSECONDS
from cloudcore.serving.asgi import Scope
from cloudcore.serving.kept_answers import EXTENSION, MOST_ANSWER_BYTES, Keep, Proof
from registry.distribution.request import DataPlaneRequest
from registry.errors import TokenRequired
from registry.metadata.blobs.link_states import seen_of
from registry.metadata.images.manifests import StoredManifest
from registry.oci.digest import Digest
from registry.services.blobs import reading
from registry.services.blobs.reading import FoundBlob
from registry.services.context import ServiceContext
from registry.services.images import manifests

MOST_SECONDS: Final = 300
"""Longest time for which an answer is kept that no bearer was sent for."""


def kept_manifest(
    ctx: ServiceContext, request: DataPlaneRequest, reference: str | Digest, found: StoredManifest
) -> Keep | None:
    """Return how the answer to a pull of a manifest may be given again.

    That of a cached tag is kept while the tag is fresh, and one that tells its age is not.
    """
    if not request.may_keep or len(found.body) > MOST_ANSWER_BYTES or found.stale_since is not None:
        return None
    until = _until(ctx, request)
    if found.fresh_until is not None:
        until = min(until, found.fresh_until)
    given, seen = (request.name, reference), manifests.seen_of(found)
    proof = Proof(manifests.look_at_manifest, given, seen)
    counts = not request.is_head and request.grant.counts_pulls
    return Keep(until, proof, partial(ctx.pulls.note, found.id) if counts else None)


def kept_blob(
    ctx: ServiceContext, request: DataPlaneRequest, digest: Digest, found: FoundBlob
) -> Keep | None:
    """Return how the answer about a blob may be given again: one that is in a row, and whole."""
    link, is_head = found.link, request.is_head
    if not request.may_keep or not link.is_inline or link.damage is not None:
        return None
    proof = Proof(reading.look_at_blob, (request.name, digest), seen_of(link))
    until = reading.kept_until(ctx, found, keep=is_head)
    ends = _until(ctx, request)
    return Keep(ends if until is None else min(ends, until), proof)


async def kept_list(
    ctx: ServiceContext, request: DataPlaneRequest, look: Callable[..., Hashable], *given: Hashable
) -> Keep | None:
    """Return the proof under which a page may be sent again; call it before the page is read."""
    if not request.may_keep:
        return None
    found = await ctx.database.read(look, request.name, *given)
    return Keep(_until(ctx, request), Proof(look, (request.name, *given), found))


def kept_greeting(ctx: ServiceContext, request: DataPlaneRequest) -> Keep | None:
    """Return how the answer that a credential is valid may be given again."""
    return Keep(_until(ctx, request)) if request.may_keep else None


def kept_challenge(ctx: ServiceContext, scope: Scope, error: Exception) -> Keep | None:
    """Return how a refusal may be given again: only the challenge to one who sent no credential.

    It depends on the settings and the request alone.
    """
    if EXTENSION not in scope.get("extensions", ()) or not isinstance(error, TokenRequired):
        return None
    if any(name == b"authorization" for name, _ in scope["headers"]):
        return None
    return Keep(ctx.clock() + MOST_SECONDS * MICROSECONDS)


def _until(ctx: ServiceContext, request: DataPlaneRequest) -> int:
    expires_at = request.grant.expires_at
    return ctx.clock() + MOST_SECONDS * MICROSECONDS if expires_at is None else expires_at
