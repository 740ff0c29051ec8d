"""``entrepot fsck``: compare the blob store with the metadata, and tell what is wrong."""

from __future__ import annotations

import asyncio
import sys

from registry.blobstore.filesystem import FilesystemStore
from registry.cli.progress import ProgressLine
from registry.cli.running import tell
from registry.gc.fsck import Progress, Report, check
from registry.main import open_context, prepare
from registry.settings import Settings


def run_fsck(settings: Settings, *, read_objects: bool) -> int:
    """Check, show every finding, and return 1 when an invariant is violated."""
    prepare(settings)
    line = ProgressLine(sys.stderr)

    def show(progress: Progress) -> None:
        read = f", {progress.read_bytes / 1e9:.2f} GB read" if read_objects else ""
        line.show(f"{progress.stage} {progress.done} of {progress.total}{read}")

    async def checked() -> Report:
        async with open_context(settings) as ctx:
            store = FilesystemStore(settings.blobs)
            return await check(ctx.database, store, show, read_objects=read_objects)

    report = asyncio.run(checked())
    line.end()
    for finding in (*report.violations, *report.leaks):
        tell(f"{finding}\n")
    tell(
        f"{report.object_count} blobs and {report.manifest_count} manifests checked: "
        f"{len(report.violations)} violations, {len(report.leaks)} leaks\n"
    )
    return 1 if report.violations else 0
