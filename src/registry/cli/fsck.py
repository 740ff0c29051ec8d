"""``entrepot fsck``: compare the blob store with the metadata, and tell what is wrong."""

from __future__ import annotations

import asyncio
import sys

from registry.blobstore.filesystem import FilesystemStore
from registry.cli.failure import Failure
from registry.cli.leaks import remove_all_leaks
from registry.cli.progress import ProgressLine
from registry.cli.running import tell
from registry.gc.fsck import Progress, Report, check
from registry.main import open_context, open_sweeper, prepare
from registry.settings import Settings


def run_fsck(settings: Settings, *, read_objects: bool, removes_leaks: bool) -> int:
    """Check, show every finding, and return 1 when an invariant is violated.

    With `removes_leaks`, and when none is, delete the stored files that belong to nobody.
    """
    prepare(settings)
    report = asyncio.run(_check(settings, read_objects))
    for finding in (*report.violations, *report.leaks):
        tell(f"{finding}\n")
    for image in report.damaged_images:
        tell(f"{image}\n")
    if report.damaged_count:
        tell(
            f"{report.damaged_count} blobs are damaged, {len(report.damaged_images)} images need "
            "them: a push of the same image heals them\n"
        )
    tell(
        f"{report.object_count} blobs and {report.manifest_count} manifests checked: "
        f"{len(report.violations)} violations, {len(report.leaks)} leaks\n"
    )
    if removes_leaks:
        if report.violations:
            raise Failure("no leaks were removed: metadata that are wrong may be wrong about them")
        removed = asyncio.run(_remove_leaks(settings))
        left = len(report.leaks) - removed
        tell(f"{removed} leaks removed{f'; {left} may be uploads under way' if left > 0 else ''}\n")
    return 1 if report.violations else 0


async def _check(settings: Settings, read_objects: bool) -> Report:  # noqa: FBT001
    line = ProgressLine(sys.stderr)

    def show(progress: Progress) -> None:
        read = f", {progress.read_bytes / 1e9:.2f} GB read" if read_objects else ""
        line.show(f"{progress.stage} {progress.done} of {progress.total}{read}")

    try:
        async with open_context(settings) as ctx:
            store = FilesystemStore(settings.blobs)
            return await check(
                ctx.database, store, show, clock=ctx.clock, read_objects=read_objects
            )
    finally:
        line.end()


async def _remove_leaks(settings: Settings) -> int:
    line = ProgressLine(sys.stderr)
    try:
        async with open_context(settings) as ctx, open_sweeper(settings) as sweeper:
            return await remove_all_leaks(ctx, sweeper, line.show)
    finally:
        line.end()
