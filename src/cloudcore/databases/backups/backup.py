"""Backups as a resource: the record, its events and its faults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from msgspec import Meta

from cloudcore.databases.archive.driver import BackupKind
from cloudcore.databases.clusters.cluster import CLUSTER, SERVICE
from cloudcore.databases.servers.driver import Proof
from cloudcore.errors import invalid_field
from cloudcore.nodes.node import NODE_LOST
from cloudcore.nodes.placed import Placed
from cloudcore.resources.resource import Reference, ReferenceTarget, Resource, own

Status = Literal["pending", "running", "succeeded", "failed", "deleting"]
Verification = Literal["never", "pending", "running", "succeeded", "failed"]
BACKUP_FAILED: Final = "BACKUP_FAILED"
VERIFICATION_FAILED: Final = "VERIFICATION_FAILED"
SUCCEEDED: Final = "database.backup.succeeded"
FAILED: Final = "database.backup.failed"
VERIFIED: Final = "database.backup.verified"
BACKUP_EVENTS: Final[Mapping[str, str]] = {
    SUCCEEDED: "A backup of a database cluster is whole",
    FAILED: "A backup of a database cluster failed, or cannot be restored",
    VERIFIED: "A backup was restored into a server of its own, and all its data could be read",
}
"""The event types of backups, with their meanings."""
_KINDS: Final[Mapping[str, BackupKind]] = {
    "base": "base",
    "full": "base",
    "incremental": "incremental",
    "incr": "incremental",
}


class Backup(Placed, kw_only=True, frozen=True):
    """A backup of a cluster, in the cluster's bucket."""

    cluster: Annotated[Reference, own()]
    kind: Annotated[BackupKind, own(heading="KIND")]
    """`base` is the whole; `incremental` is what changed since the backup before."""
    trigger: Annotated[Literal["manual", "schedule"], own(heading="TRIGGER")] = "manual"
    status: Annotated[Status, own(heading="STATUS")] = "pending"
    """`pending`: it waits for others of the cluster, which go one at a time."""
    progress: Annotated[int, Meta(ge=0, le=100), own(heading="PROGRESS", form="number")] = 0
    """Percent that are done."""
    size_bytes: Annotated[int | None, own(heading="SIZE", form="size", shows_null=True)] = None
    """Of the files that a restore writes."""
    stored_bytes: Annotated[int | None, own(heading="STORED", form="size", shows_null=True)] = None
    """Of the objects that it added to the bucket."""
    started_at: Annotated[int | None, own(form="time", shows_null=True)] = None
    completed_at: Annotated[int | None, own(form="time", heading="COMPLETED", shows_null=True)] = (
        None
    )
    verification: Annotated[Verification, own(heading="VERIFICATION")] = "never"
    """The result of its last verification; `never`: it was not verified."""
    verified_at: Annotated[int | None, own(form="time", heading="VERIFIED", shows_null=True)] = None
    """When it was last shown that it can be restored."""
    verified_by: Annotated[Proof | None, own(heading="PROOF", shows_null=True)] = None
    """How that was shown: `checksums`, by the checksum of every page; `rows`, by reading every row
    of a server whose pages have no checksums."""
    base_id: Annotated[str | None, own(shows_null=True)] = None
    """Id of the base backup that an incremental one needs."""
    label: Annotated[str, own(hidden=True)] = ""
    """Its name in the archive; empty until it is complete."""

    @property
    def crn(self) -> str:
        """Return the backup's CRN."""
        return BACKUP.crn_of(self)


BACKUP: Final = Resource(
    record=Backup,
    service=SERVICE,
    one="backup",
    many="backups",
    table="database_backups",
    key="id",
    methods=(),
    methods_with_events=(),
    refers={"cluster": ReferenceTarget(CLUSTER, CLUSTER.action("get"))},
    warnings=frozenset({NODE_LOST}),
)
"""The backups of clusters."""


def read_kind(given: str | None) -> BackupKind:
    """Parse the kind of a requested backup; the default is ``base``.

    Raise `InvalidInput` if the text is neither a kind nor an alias of one.
    """
    if not given:
        return "base"
    if given not in _KINDS:
        words = "is base or incremental (or full or incr, which mean the same)"
        raise invalid_field("kind", words, "unknown")
    return _KINDS[given]
