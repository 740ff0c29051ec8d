"""The storage family in a server."""

from __future__ import annotations

from typing import Final

from cloudcore.family import Runtime
from cloudcore.jobs.schedule import scheduled
from cloudcore.resources.routes import handlers_of
from cloudcore.storage import bucket_rows, tables
from cloudcore.storage.bucket import STORAGE
from cloudcore.storage.needs import StorageNeeds, open_needs
from cloudcore.storage.pieces import cleanup
from cloudcore.storage.pieces.rewrapping import rewrap_kind
from cloudcore.storage.routes import buckets, multipart, objects

RUNTIME: Final[Runtime[StorageNeeds]] = Runtime(
    open=open_needs,
    routes=handlers_of(buckets, objects, multipart),
    job_kinds=lambda needs: (rewrap_kind(needs),),
    schedule=scheduled(
        ("storage.abandoned_uploads", cleanup.ABORT_SECONDS, cleanup.abort_abandoned),
        ("storage.condemned_pieces", cleanup.DELETE_SECONDS, cleanup.delete_condemned),
        ("storage.deleted_keys", cleanup.DELETE_SECONDS, cleanup.shred_deleted_keys),
        ("storage.orphaned_bytes", cleanup.SCAN_SECONDS, cleanup.scan_bytes),
    ),
    expiry=(cleanup.forget_completed,),
    samples={STORAGE.name: bucket_rows.bytes_by_account},
    uses=(tables.BUCKET_ROWS.counted, bucket_rows.BYTES),
)
