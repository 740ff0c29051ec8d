"""Metrics of a registry: the events that workers count, and the gauges measured at each scrape.

The gauges are of disk, database, jobs, chores, nodes, backups and uploads. Each query reads a
bounded number of rows, so a scrape costs the same in every registry.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from cloudcore.clock import MICROSECONDS
from cloudcore.db.opening import is_postgresql, sqlite_path
from cloudcore.jobs.metrics import ChoreStatus, UnfinishedJobs, chores, unfinished_jobs
from cloudcore.nodes.rows import NodeRow, list_nodes
from cloudcore.own_certificate.paths import ORDER_EVENTS
from cloudcore.serving.counters import QUOTAS, ApplicationEvents, CountedEvent, Gauge
from cloudcore.serving.tls.files import HANDSHAKE_EVENT
from registry import counters
from registry.blobstore.backups import BackupTimes, backup_times
from registry.blobstore.opening import backup_times_folder
from registry.composition.families import FAMILIES
from registry.metadata.collector.plain_objects import MOST_COUNTED, estimate_plain
from registry.metadata.collector.scrub import oldest_verified_at
from registry.metadata.metrics import MOST_UPLOADS, open_uploads, postgresql_bytes
from registry.metadata.pull_through.rules import Totals, totals_of_all
from registry.services.context import ServiceContext
from registry.settings.settings import Settings

STEP: Final = 2000
"""Number of files and folders examined per call: about 10 ms, unless the disk is busy."""
_FORGOTTEN_AFTER: Final = 7 * 24 * 3600 * MICROSECONDS
"""A machine not seen for this long counts as removed."""
_BLOCK: Final = 512
"""Bytes of the unit of ``st_blocks`` on every file system (POSIX)."""

_MEANING: Final[Mapping[str, str]] = {
    "entrepot_data_size_bytes": "Disk space of all in the data folder, as of the last complete"
    " count.",
    "entrepot_database_size_bytes": "Size of the database on its disk.",
    "entrepot_uploads_open": f"Upload sessions that are open; counted up to {MOST_UPLOADS}.",
    "entrepot_uploads_open_limit": "Upload sessions that one account, or one repository, may have"
    " open.",
    "entrepot_disk_cache_limit_bytes": "Bytes that this machine keeps of a bucket on its disk; 0:"
    " none.",
    "entrepot_disk_size_bytes": "Size of the file system of the blobs.",
    "entrepot_disk_free_bytes": "Free bytes of the file system of the blobs; uploads leave the"
    " last 64 MiB.",
    "entrepot_disk_free_inodes": "Files that the file system can still hold.",
    "entrepot_scrub_period_seconds": "Time within which the scrub reads every blob once; 0: it is"
    " turned off.",
    "entrepot_scrub_oldest_seconds": "Time since the bytes of the blob that was verified longest"
    " ago were verified.",
    "entrepot_plain_blobs": f"Blobs that are stored plain; counted up to {MOST_COUNTED}.",
    "entrepot_plain_bytes": "Bytes of these blobs.",
    "entrepot_jobs_unfinished": "Jobs that a worker could begin (due), has (running), or that wait"
    " for their time.",
    "entrepot_jobs_late_seconds": "Time for which the job due first has waited for a worker.",
    "entrepot_node_info": "1, with the name of the machine that says so.",
    "entrepot_backup_running_seconds": "How long the backup under way has taken; 0 if none runs.",
    "entrepot_disk_cache_size_bytes": "Disk space of what it keeps, as of the last complete count.",
    "entrepot_node_seen_seconds": "Time since a machine of the install said last that it is there.",
    "entrepot_backup_finished_timestamp_seconds": "When the last complete backup ended.",
    "entrepot_chore_failed": "1 if the last turn of a periodic chore failed.",
    "entrepot_chore_ended_timestamp_seconds": "When the last turn of a periodic chore ended.",
    "entrepot_chore_late_seconds": "Time since the last turn of a periodic chore ended, beyond its"
    " period.",
    "entrepot_cache_pulls": "Pulls of cached images, under all pull-through cache rules.",
    "entrepot_cache_misses": "Those for which a manifest was fetched.",
    "entrepot_cache_fetched_bytes": "Bytes that came from upstreams.",
    "entrepot_cache_served_bytes": "Bytes of cached blobs that clients got.",
}
"""The documentation of each gauge, by its name."""


def _gauge(name: str, value: float, **labels: str) -> Gauge:
    return Gauge(name, _MEANING[name], value, labels)


class FolderSize:
    """Adds up the disk space of all files below some folders, over as many calls as needed.

    Each call costs the same, however large the registry is. Hard-linked files count twice.
    """

    def __init__(self, folders: Sequence[Path], step: int = STEP) -> None:
        self._folders = folders
        self._step = step
        self._walk: Iterator[int] | None = None
        self._sum = 0
        self._total: int | None = None

    def count_on(self) -> int | None:
        """Continue counting; return the bytes of the last complete count. Blocks.

        Return None until the first count is complete.
        """
        if self._walk is None:
            self._walk, self._sum = self._sizes(), 0
        sizes = list(islice(self._walk, self._step))
        self._sum += sum(sizes)
        if len(sizes) < self._step:
            self._total, self._walk = self._sum, None
        return self._total

    def _sizes(self) -> Iterator[int]:
        folders = [str(folder) for folder in self._folders]
        while folders:
            # A file that was deleted meanwhile takes no space.
            with suppress(FileNotFoundError), os.scandir(folders.pop()) as entries:
                for entry in entries:
                    with suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        if entry.is_dir(follow_symlinks=False):
                            folders.append(entry.path)
                        yield found.st_blocks * _BLOCK


class MeasuredFolders(NamedTuple):
    """The folders whose sizes are counted."""

    data: FolderSize
    cache: FolderSize
    """The disk cache of a bucket."""


class ChorePeriods(NamedTuple):
    """The period of each chore of a process, in seconds by name, and when the process started."""

    seconds: Mapping[str, float]
    since: int
    """Microseconds since the epoch."""


async def measure(
    settings: Settings, ctx: ServiceContext, folders: MeasuredFolders, periods: ChorePeriods
) -> Sequence[Gauge]:
    """Return the gauges of a registry.

    Raise `Unavailable` if the database cannot be read; `OSError` if the data folder cannot.
    """
    now, database = ctx.clock(), ctx.database
    place = backup_times_folder(settings)
    gauges = await asyncio.to_thread(lambda: [*_disk(place)])
    data_bytes = await asyncio.to_thread(folders.data.count_on)
    if data_bytes is not None:
        gauges.append(_gauge("entrepot_data_size_bytes", data_bytes))
    gauges += _disk_cache(settings, await asyncio.to_thread(folders.cache.count_on))
    if is_postgresql(settings.database):
        size = await database.read(postgresql_bytes)
    else:
        size = await asyncio.to_thread(_file_bytes, sqlite_path(settings.database))
    gauges.append(_gauge("entrepot_database_size_bytes", size))
    gauges += _scrub(settings, await database.read(oldest_verified_at), now)
    plain = await database.read(estimate_plain)
    gauges.append(_gauge("entrepot_plain_blobs", plain.object_count))
    gauges.append(_gauge("entrepot_plain_bytes", plain.stored_bytes))
    gauges += _cache(await database.read(totals_of_all))
    gauges += _jobs(await database.read(unfinished_jobs, now), now)
    gauges += _chores(await database.read(chores), periods, now)
    gauges += _nodes(settings.node.name, await database.read(list_nodes), now)
    gauges += _backups(await asyncio.to_thread(backup_times, place), now)
    gauges.append(_gauge("entrepot_uploads_open", await database.read(open_uploads)))
    limits = (
        ("account", settings.limits.max_open_uploads),
        ("repository", settings.limits.max_open_uploads_per_repository),
    )
    gauges += [_gauge("entrepot_uploads_open_limit", limit, of=whose) for whose, limit in limits]
    return gauges


def folders_of(settings: Settings) -> MeasuredFolders:
    """Return the folders to measure: data (with blobs that are elsewhere), and the disk cache."""
    data, blobs = settings.data.resolve(), settings.blobs.resolve()
    all_data = FolderSize([data] if blobs.is_relative_to(data) else [data, blobs])
    return MeasuredFolders(all_data, FolderSize([settings.cache]))


def _disk_cache(settings: Settings, size: int | None) -> Iterator[Gauge]:
    store = settings.store
    yield _gauge(
        "entrepot_disk_cache_limit_bytes", store.cache_bytes if store.store_s3_bucket else 0
    )
    if size is not None:
        yield _gauge("entrepot_disk_cache_size_bytes", size)


def _disk(folder: Path) -> Iterator[Gauge]:
    """Yield the gauges of a folder's file system. Blocks."""
    found = os.statvfs(folder)
    yield _gauge("entrepot_disk_size_bytes", found.f_blocks * found.f_frsize)
    yield _gauge("entrepot_disk_free_bytes", found.f_bavail * found.f_frsize)
    yield _gauge("entrepot_disk_free_inodes", found.f_favail)


def _file_bytes(path: Path) -> int:
    """Return the size of an SQLite database in bytes, with its write-ahead log. Blocks."""
    files = (path, path.with_name(f"{path.name}-wal"))
    return sum(file.stat().st_size for file in files if file.exists())


def _scrub(settings: Settings, oldest: int | None, now: int) -> Iterator[Gauge]:
    scrubbing = settings.scrubbing
    yield _gauge(
        "entrepot_scrub_period_seconds",
        scrubbing.scrub_every_seconds if scrubbing.scrub_rate_bytes else 0,
    )
    yield _gauge(
        "entrepot_scrub_oldest_seconds", 0 if oldest is None else (now - oldest) / MICROSECONDS
    )


def _cache(totals: Totals) -> Iterator[Gauge]:
    yield _gauge("entrepot_cache_pulls", totals.pulls)
    yield _gauge("entrepot_cache_misses", totals.misses)
    yield _gauge("entrepot_cache_fetched_bytes", totals.fetched_bytes)
    yield _gauge("entrepot_cache_served_bytes", totals.served_bytes)


def _jobs(figures: Sequence[UnfinishedJobs], now: int) -> Iterator[Gauge]:
    for figure in figures:
        yield _gauge("entrepot_jobs_unfinished", figure.jobs, kind=figure.kind, stage=figure.stage)
    late = [now - figure.first_due_at for figure in figures if figure.stage == "due"]
    yield _gauge("entrepot_jobs_late_seconds", max(late, default=0) / MICROSECONDS)


def _nodes(own: str, nodes: Sequence[NodeRow], now: int) -> Iterator[Gauge]:
    yield _gauge("entrepot_node_info", 1, node=own)
    for each in (one for one in nodes if one.seen_at > now - _FORGOTTEN_AFTER):
        yield _gauge(
            "entrepot_node_seen_seconds", max(0, now - each.seen_at) / MICROSECONDS, node=each.name
        )


def _backups(times: BackupTimes, now: int) -> Iterator[Gauge]:
    begun_at = now if times.begun_at is None else times.begun_at
    yield _gauge("entrepot_backup_running_seconds", max(0, now - begun_at) / MICROSECONDS)
    if times.finished_at is not None:
        yield _gauge("entrepot_backup_finished_timestamp_seconds", times.finished_at / MICROSECONDS)


def _chores(figures: Sequence[ChoreStatus], periods: ChorePeriods, now: int) -> Iterator[Gauge]:
    for figure in figures:
        if figure.ended_at is not None:
            yield _gauge(
                "entrepot_chore_ended_timestamp_seconds",
                figure.ended_at / MICROSECONDS,
                chore=figure.name,
            )
        yield _gauge("entrepot_chore_failed", int(figure.is_failed), chore=figure.name)
        period = periods.seconds.get(figure.name)
        if period is not None:
            last = periods.since if figure.ended_at is None else figure.ended_at
            yield _gauge(
                "entrepot_chore_late_seconds",
                max(0.0, (now - last) / MICROSECONDS - period),
                chore=figure.name,
            )


_REACHED: Final = tuple(
    CountedEvent(
        f"{QUOTAS}.{quota.name}",
        "entrepot_quota_refusals",
        "Requests refused because a quota is reached.",
        {"quota": quota.name},
    )
    for family in FAMILIES
    for quota in family.quotas
)
APPLICATION_EVENTS: Final = ApplicationEvents(
    (*counters.EVENTS, HANDSHAKE_EVENT, *ORDER_EVENTS, *_REACHED), counters.OUTCOMES
)
