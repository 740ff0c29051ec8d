"""Ask the upstream of a rule, to show whether it can be asked."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from cloudcore.clock import Clock
from registry.metadata.pull_through.rules import CacheRule
from registry.oci.reference import Name
from registry.services.pull_through.remote import OpenCredential, remote_of
from registry.upstream.base import HiddenUpstream, NotUpstream, Stage, Upstream, UpstreamFailed

_MOST_SECONDS: Final = 30
_OK: Final = 200
_NOT_FOUND: Final = 404


class Probed(NamedTuple):
    """How a test ended."""

    ok: bool
    stage: Stage
    """How far it came."""
    http_status: int | None
    latency_ms: int
    message: str


class Wanted(NamedTuple):
    """An image to ask for."""

    repository: Name
    tag: str


async def ask_upstream(
    upstream: Upstream | None,
    open_credential: OpenCredential,
    rule: CacheRule,
    wanted: Wanted | None,
    clock: Clock,
) -> Probed:
    """Ask the upstream of a rule for an image, without pulling it, or only whether it answers."""
    began = clock()

    def ended(stage: Stage, status: int | None, message: str, *, ok: bool = False) -> Probed:
        return Probed(ok, stage, status, max(0, clock() - began) // 1000, message)

    if upstream is None:
        return ended("dns", None, "this server asks no upstreams")
    name = wanted.repository if wanted else Name("", f"{rule.prefix}/")
    remote = remote_of(rule, name, open_credential)
    try:
        async with asyncio.timeout(_MOST_SECONDS):
            if wanted is None:
                status = await upstream.ping(remote._replace(repository=""))
                return ended("auth", status, f"{rule.upstream_url} answers", ok=True)
            await upstream.head_manifest(remote, wanted.tag)
    except TimeoutError:
        return ended("tls", None, f"no answer within {_MOST_SECONDS} seconds")
    except NotUpstream as missing:
        words = f"{rule.upstream_url} has no {remote.repository}"
        words = f"{words}:{wanted.tag}" if wanted else words
        if not isinstance(missing, HiddenUpstream):
            return ended("manifest", _NOT_FOUND, words)
        whom = "anonymous requests" if rule.username is None else f"the user {rule.username}"
        status = missing.http_status
        return ended("manifest", status, f"{words}, or does not show it to {whom}")
    except UpstreamFailed as failure:
        return ended(failure.stage, failure.http_status, str(failure))
    return ended("manifest", _OK, f"{remote.repository}:{wanted.tag} is there", ok=True)
