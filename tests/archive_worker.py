"""A service that backs up one server, to be killed meanwhile: it tells what is done, in percent."""

from __future__ import annotations

import asyncio
import json
import sys
from ipaddress import ip_network
from pathlib import Path
from typing import Any

from cloudcore.databases.archive.bucket_archive import BucketArchive
from cloudcore.databases.archive.driver import BackupTarget, RegisteredEndpoint
from cloudcore.databases.archive.pgbackrest import ServerPlace
from cloudcore.databases.archive.s3_bridge import Bridge, S3Address
from cloudcore.iam.service_roles import SERVICE_ROLES
from cloudcore.storage.family import STORAGE
from registry.composition.main import Registry
from registry.composition.serve import SERVE
from registry.settings.settings import Settings


async def _back_up(order: dict[str, Any]) -> None:
    data, user, sockets, port, inside = order["place"]
    place = ServerPlace(Path(data), tuple(user), Path(sockets), port, inside)
    async with Registry(Settings(data=Path(order["data"])), SERVE).open_planes() as (opening, _):
        archives = BucketArchive(
            await opening.needs_of(STORAGE),
            (await opening.get(SERVICE_ROLES))("database"),
            Bridge(S3Address("127.0.0.1", order["s3_port"], "localhost", None)),
            Path(order["folder"]),
            lambda _target: place,
            [ip_network("127.0.0.0/8")],
        )
        target = BackupTarget(*order["target"])
        if target.endpoint is not None:
            target = target._replace(endpoint=RegisteredEndpoint(*target.endpoint))
        _tell(0)
        await archives.back_up(target, order["backup_id"], "base", _tell)


def _tell(percent: int) -> None:
    sys.stdout.write(f"{percent}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    asyncio.run(_back_up(json.loads(sys.argv[1])))
