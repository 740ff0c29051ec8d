"""Check that the metadata is consistent before the collector deletes anything.

A manifest's bytes list the blobs it needs; edges, links and counters are derived from them. If some
of these rows were lost (a truncated table, a partly restored backup), a blob in use looks like
garbage. So before the collector unlinks blobs of a repository, it compares some of its manifests
with their edges, and stops if edges are missing.
"""

from __future__ import annotations

from collections import Counter
from typing import Final

from cloudcore.db.base import Connection
from registry.errors import ManifestInvalid
from registry.metadata.collector import audit
from registry.metadata.collector.audit import ManifestBody
from registry.oci.digest import digest_of
from registry.oci.manifest import parse_manifest
from registry.oci.media_types import is_foreign_layer

_SAMPLE: Final = 4
"""Manifests of each sort. Those of a sort are read at once, and each may have 4 MiB."""


class IndexIncomplete(Exception):
    """Edges, links or counters contradict the manifests; nothing may be collected."""


def check_repository(tx: Connection, repository_id: str) -> None:
    """Compare a repository's newest, oldest and last deleted manifests with their edges.

    Raises:
        IndexIncomplete: a manifest is damaged, or has fewer edges than it must have.

    """
    for document in audit.sample_manifests(tx, repository_id, _SAMPLE):
        problem = manifest_problem(document)
        if problem:
            raise IndexIncomplete(f"manifest {document.digest} in {document.repository}: {problem}")


def body_problem(body: bytes, digest: str) -> str | None:
    """Return what is wrong with a manifest's bytes, or None."""
    return None if digest_of(body) == digest else "its bytes hash to something else"


def manifest_problem(document: ManifestBody) -> str | None:
    """Return what is wrong with a manifest's bytes or edges, or None."""
    if document.body is None:
        return "its bytes are gone"
    problem = body_problem(document.body, document.digest)
    if problem is not None:
        return problem
    try:
        parsed = parse_manifest(document.body, document.media_type, is_stored=True)
    except ManifestInvalid as error:
        return f"its bytes are no manifest: {error.message}"
    listed = {
        descriptor.digest
        for descriptor in (*parsed.blobs, *parsed.children)
        if not is_foreign_layer(descriptor.media_type)
    }
    # Two digests name one blob or manifest only if their algorithms differ.
    required = max(Counter(digest.partition(":")[0] for digest in listed).values(), default=0)
    # An index may list blobs, so its edges count together.
    held = document.blob_edges + document.child_edges
    if held < required:
        what = "children" if parsed.is_index else "blobs"
        return f"{required} {what} are listed, {held} are held"
    return None
