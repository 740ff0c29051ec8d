"""The counted events of a registry, except requests: keys, metric names and documentation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cloudcore.db.pending import CHANGES, FAILURES, MICROSECONDS
from cloudcore.serving.counters import CountedEvent

DAMAGED: Final = "damaged"
FREED_BYTES: Final = "collector.freed_bytes"
SCRUBBED_OBJECTS: Final = "scrub.objects"
SCRUBBED_BYTES: Final = "scrub.bytes"
SCRUBBED_DAMAGED: Final = "scrub.damaged"
SEALED_OBJECTS: Final = "seal.objects"
SEALED_BYTES: Final = "seal.bytes"
CACHE_READS: Final = "disk_cache.reads"
"""First part of the keys ``disk_cache.reads.<outcome>``."""
CACHE_OUTCOMES: Final = ("hit", "followed", "missed")
CACHE_SERVED: Final = "disk_cache.served"
CACHE_FETCHED: Final = "disk_cache.fetched"
CACHE_EVICTED: Final = "disk_cache.evicted"
CACHE_BAD: Final = "disk_cache.bad"
RUNS: Final = "runs"
"""First part of the keys ``runs.<what>.<state>`` of ended runs."""
JOBS: Final = "jobs"
"""First part of the keys ``jobs.succeeded`` and ``jobs.failed``."""

_SIGN_INS: Final = {
    ("POST", b"/v1/oauth/authorize"): "page",
    ("POST", b"/v1/oauth/token"): "token",
    ("GET", b"/v2/token"): "container client",
}
"""Maps method and path of each endpoint at which clients sign in to its name."""


def _events() -> Iterator[CountedEvent]:
    yield CountedEvent(
        DAMAGED,
        "entrepot_damaged_blobs",
        "Blobs, and manifests, found damaged by a pull or a push and not known to be.",
    )
    yield CountedEvent(CHANGES, "entrepot_database_changes", "Changes of the database that ended.")
    yield CountedEvent(
        FAILURES,
        "entrepot_database_change_failures",
        "Changes that the database could not make: it is busy, full, damaged or out of reach.",
    )
    yield CountedEvent(
        MICROSECONDS,
        "entrepot_database_change_seconds",
        "Time from the call of a change to its result, in all.",
        scale=1_000_000,
    )
    for outcome in ("succeeded", "failed"):
        yield CountedEvent(
            f"{JOBS}.{outcome}", "entrepot_jobs_ended", "Jobs that ended.", {"outcome": outcome}
        )
        for what in ("collection", "lifecycle run", "rewrap"):
            yield CountedEvent(
                f"{RUNS}.{what}.{outcome}",
                "entrepot_runs_ended",
                "Runs of the collector, of lifecycle policies and of rewraps that ended.",
                {"run": what.partition(" ")[0], "outcome": outcome},
            )
    yield CountedEvent(
        FREED_BYTES, "entrepot_collector_freed_bytes", "Bytes of blobs that the collector deleted."
    )
    yield CountedEvent(
        SCRUBBED_OBJECTS,
        "entrepot_scrub_blobs",
        "Blobs, and pieces of buckets, that the scrub in the background has read.",
    )
    yield CountedEvent(
        SCRUBBED_BYTES,
        "entrepot_scrub_read_bytes",
        "Bytes of blobs, manifests and buckets that the scrub in the background has read.",
    )
    yield CountedEvent(
        SCRUBBED_DAMAGED,
        "entrepot_scrub_damaged",
        "Damaged blobs, manifests and pieces of buckets that the background scrub has found.",
    )
    yield CountedEvent(
        SEALED_OBJECTS, "entrepot_seal_blobs", "Plain blobs that were sealed in the background."
    )
    yield CountedEvent(
        SEALED_BYTES, "entrepot_seal_bytes", "Bytes of plain blobs that were sealed so."
    )
    yield from _disk_cache()
    for door in _SIGN_INS.values():
        for outcome in ("succeeded", "refused", "limited", "failed"):
            yield CountedEvent(
                f"sign_in.{door}.{outcome}",
                "entrepot_sign_ins",
                "Attempts to sign in: on the page, with an access key or a code at the token"
                " endpoint, and by container clients (their anonymous requests too).",
                {"door": door, "outcome": outcome},
            )


def _disk_cache() -> Iterator[CountedEvent]:
    for outcome in CACHE_OUTCOMES:
        yield CountedEvent(
            f"{CACHE_READS}.{outcome}",
            "entrepot_disk_cache_reads",
            "Reads of objects of a bucket: from the machine's cache, from what another reader"
            " fetches, and those that fetched it or went past the cache.",
            {"outcome": outcome},
        )
    for key, metric, documentation in (
        (CACHE_SERVED, "served_bytes", "Bytes that were read from whole files of the cache."),
        (CACHE_FETCHED, "fetched_bytes", "Bytes that were fetched from the bucket into the cache."),
        (CACHE_EVICTED, "evicted_bytes", "Bytes that left the cache, for room or unused."),
        (CACHE_BAD, "bad_files", "Files of the cache with other bytes than were stored."),
    ):
        yield CountedEvent(key, f"entrepot_disk_cache_{metric}", documentation)


EVENTS: Final = tuple(_events())
OUTCOMES: Final = {request: f"sign_in.{door}" for request, door in _SIGN_INS.items()}
"""Maps method and path of a sign-in to the first part of the keys that count its outcomes."""
