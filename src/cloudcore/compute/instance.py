"""What an instance is: one running copy of the image of a pool."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from msgspec import field

from cloudcore.compute.instance_pool import INSTANCE_POOL, SERVICE, Version
from cloudcore.resources.record import Record, Reference, own
from cloudcore.resources.resource import Resource, Target

Status = Literal["starting", "running", "unhealthy", "stopping", "stopped"]


class Instance(Record, frozen=True, kw_only=True):
    """One running copy of a pool's image.

    Its row is there before anything of it is on the machine, and until nothing is any more.
    """

    pool: Annotated[Reference, own()]
    node: Annotated[str, own(heading="NODE")]
    status: Annotated[Status, own(heading="STATUS")] = "starting"
    """`running`: it is ready; `unhealthy`: its program runs, but its port takes no connection;
    `stopped`: its program has ended, and is started again; `stopping`: it goes."""
    address: Annotated[str | None, own(heading="ADDRESS", shows_null=True)] = None
    """In its subnet: IPv4 if that has any, else IPv6; null without a subnet."""
    address_ipv6: Annotated[str | None, own(shows_null=True)] = None
    image: Annotated[str, own()]
    """As its pool named it when it was made."""
    image_digest: Annotated[str, own()]
    started_at: Annotated[int | None, own(form="time", heading="STARTED", shows_null=True)] = None
    """When its program was started last."""
    restarts: Annotated[int, own(heading="RESTARTS", form="number")] = 0
    """How often its program ended and was started again."""
    exit_code: Annotated[int | None, own(heading="EXIT", shows_null=True)] = None
    """With which its program ended last; 128 and the number of a signal if one ended it."""
    version: Annotated[Version, own(hidden=True)]
    memory_mb: Annotated[int, own(hidden=True)]
    """Of its version, as is the next, for sums."""
    cpu_millis: Annotated[int, own(hidden=True)]
    ports: Annotated[list[int], own(hidden=True)] = field(default_factory=list)
    interface_id: Annotated[str | None, own(hidden=True)] = None
    exits: Annotated[tuple[int, ...], own(hidden=True)] = ()
    """The last moments at which its program ended, the newest last."""
    not_before: Annotated[int | None, own(hidden=True)] = None
    """Not before this its program is started again, or is ended if it goes."""

    @property
    def is_leaving(self) -> bool:
        """Return True if it goes."""
        return self.status == "stopping"

    @property
    def is_ready(self) -> bool:
        """Return True if it takes connections."""
        return self.status == "running"


INSTANCE: Final = Resource(
    record=Instance,
    service=SERVICE,
    one="instance",
    many="instances",
    key="id",
    methods=(),
    told=(),
    refers={"pool": Target(INSTANCE_POOL, INSTANCE_POOL.action("get"))},
)
"""The instances of pools. Rights to them are rights to their pool."""
