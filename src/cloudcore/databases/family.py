"""The databases family: database clusters and their backups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.databases.backups.backup import BACKUP, BACKUP_EVENTS
from cloudcore.databases.clusters.cluster import (
    BACKUP_STORAGE,
    CLUSTER,
    CPU_HOURS,
    DISK,
    MEMORY,
    MEMORY_HOURS,
    SERVICE,
)
from cloudcore.family import CommandGroup, Family

if TYPE_CHECKING:
    from cloudcore.databases.needs import DatabaseNeeds


DATABASES: Final[Family[DatabaseNeeds]] = Family(
    name=SERVICE,
    title="Database clusters",
    runs="cloudcore.databases.runtime:RUNTIME",
    resources=(CLUSTER,),
    other_events=tuple(BACKUP_EVENTS),
    event_words=BACKUP_EVENTS,
    skus=(MEMORY_HOURS, CPU_HOURS, BACKUP_STORAGE),
    quotas=(MEMORY, DISK, BACKUP.room),
    commands=(CommandGroup("use the platform's services", ("cloudcore.databases.commands",)),),
)
