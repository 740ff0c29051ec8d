"""Whether the metadata can be believed before anything is collected by it.

Which blobs a manifest needs is written in the manifest; edges, links and counts are derived from
that. Where some of them were lost (a table truncated, a part of a backup brought back), a blob in
use looks like garbage. So a collector that is about to take something from a repository compares
some of its manifests with what was derived from them, and refuses if they differ.
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
"""Of each sort. A manifest may have 4 MiB, and those of a sort are read at once."""


class IndexIncomplete(Exception):
    """What the collector decides by contradicts the manifests; nothing may be collected."""


def check_repository(tx: Connection, repository_id: str) -> None:
    """Compare a repository's newest, oldest and last deleted manifests with their edges.

    Raises:
        IndexIncomplete: one lists more than is recorded.

    """
    for document in audit.sample_manifests(tx, repository_id, _SAMPLE):
        problem = manifest_problem(document)
        if problem:
            raise IndexIncomplete(f"manifest {document.digest} in {document.repository}: {problem}")


def manifest_problem(document: ManifestBody) -> str | None:
    """Say what is wrong with a manifest's bytes or edges, if anything."""
    if document.body is None:
        return "its bytes are gone"
    if digest_of(document.body) != document.digest:
        return "its bytes hash to something else"
    try:
        parsed = parse_manifest(document.body, document.media_type, is_stored=True)
    except ManifestInvalid as error:
        return f"its bytes are no manifest: {error.message}"
    listed = {
        descriptor.digest
        for descriptor in parsed.blobs
        if not is_foreign_layer(descriptor.media_type)
    }
    # Digests of two algorithms may name one blob; those of one algorithm never do.
    required = max(Counter(digest.partition(":")[0] for digest in listed).values(), default=0)
    if document.blob_edges < required:
        return f"{required} blobs are listed, {document.blob_edges} are held"
    children = {descriptor.digest for descriptor in parsed.children}
    if document.child_edges < len(children):
        return f"{len(children)} children are listed, {document.child_edges} are held"
    return None
