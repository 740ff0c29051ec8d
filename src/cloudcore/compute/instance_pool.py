"""Describe instance pools (a number of instances of one image) and their instances."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal

from msgspec import Meta, Struct, field

from cloudcore.errors import invalid_field
from cloudcore.metering.sku import Sku
from cloudcore.nodes.node import NODE_LOST
from cloudcore.nodes.placed import Placed
from cloudcore.quotas.quota import Quota
from cloudcore.resources.resource import (
    Description,
    Filter,
    Record,
    Reference,
    ReferenceTarget,
    Resource,
    ResourceName,
    fixed,
    given,
    own,
)

SERVICE: Final = "compute"
Status = Literal["provisioning", "active", "scaling", "degraded", "deleting"]
MOST_INSTANCES: Final = 20
"""The most instances of one pool."""
MOST_PORTS: Final = 10
MOST_GROUPS: Final = 5
MOST_WORDS: Final = 100
MOST_VARIABLES: Final = 100
MOST_TEXT_BYTES: Final = 32 * 1024
"""The most bytes of a command, and of an environment."""
KEPT_SECONDS: Final = 24 * 3600
"""How long a deleted pool keeps its row; until then, deleting it again is 204."""
IMAGE_REFUSED: Final = "IMAGE_REFUSED"
INSTANCE_CRASHING: Final = "INSTANCE_CRASHING"
"""An instance ended five times in ten minutes."""
ROLL_STOPPED: Final = "ROLL_STOPPED"
"""An instance of the new version does not become ready; instances of the old version keep
running."""
INSTANCE_FAILED: Final = "INSTANCE_FAILED"
"""An instance could not be made or started."""
ROLE_REFUSED: Final = "ROLE_REFUSED"
"""An instance has no credentials of the pool's role."""
NO_ADDRESS: Final = "NO_ADDRESS"
"""The subnet has no address left, or is gone."""
COMPUTE_OFF: Final = "COMPUTE_OFF"
INSTANCES: Final = Quota("instances", 100, "instances, as the sizes of pools say")
MEMORY: Final = Quota("instance_memory_mb", 64 * 1024, "MiB of memory of instances")
MEMORY_HOURS: Final = Sku("compute.memory_mb_hours", "Memory of instances", "GiB-hour", 1024)
CPU_HOURS: Final = Sku("compute.cpu_milli_hours", "Processors of instances", "CPU-hour", 1000)

_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")


class Version(Struct, frozen=True):
    """The configuration with which an instance is started.

    An instance is replaced if its pool has another version.
    """

    image_digest: str
    command: list[str]
    environment: dict[str, str]
    memory_mb: int
    cpu_millis: int

    def __repr__(self) -> str:
        """Return only the image's digest: the environment must not get into logs."""
        return f"Version({self.image_digest})"


class InstancePool(Placed, frozen=True, kw_only=True):
    """An image, and the number of its instances that are kept running."""

    name: ResourceName
    image: Annotated[
        str,
        Meta(min_length=1, max_length=512),
        given("image that is kept here: web:1, or acme/web:1 of another account", heading="IMAGE"),
    ]
    """What its tag means when the pool is created, or this is changed."""
    size: Annotated[
        int,
        Meta(ge=0, le=MOST_INSTANCES),
        given("instances that are kept running", heading="SIZE", form="number"),
    ] = 1
    """Instances that are kept running."""
    status: Annotated[Status, own(heading="STATUS")] = "provisioning"
    """`active`: all instances are ready; `scaling`: a change is under way; `degraded`: something
    is wrong, as `faults` say, and is tried again."""
    description: Description = ""
    command: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=4096)]],
        Meta(max_length=MOST_WORDS),
        given("program and arguments, instead of the image's own"),
    ] = field(default_factory=list)
    """Program and arguments; empty: those of the image."""
    environment: Annotated[
        dict[str, str], given("a variable of the environment, which is no place for secrets")
    ] = field(default_factory=dict)
    """Variables besides those of the image. They are no place for secrets: who may read the pool
    sees them."""
    memory_mb: Annotated[
        int,
        Meta(ge=16, le=64 * 1024),
        given("MiB of memory of an instance", heading="MEMORY", form="number"),
    ] = 256
    """MiB of memory of an instance."""
    cpu_millis: Annotated[
        int,
        Meta(ge=10, le=64_000),
        given("thousandths of a processor of an instance", heading="CPU", form="number"),
    ] = 250
    """Thousandths of a processor of an instance."""
    ports: Annotated[
        list[Annotated[int, Meta(ge=1, le=65535)]],
        Meta(max_length=MOST_PORTS),
        fixed("TCP ports that the program listens on"),
    ] = field(default_factory=list)
    """TCP ports that the program listens on. An instance is ready when the first of them takes a
    connection; without any, when it has run for five seconds."""
    # Requests refer to the next three by name, id or CRN; the record has their ids.
    role: Annotated[
        Annotated[str, Meta(min_length=1, max_length=512)] | None,
        fixed("role that instances act in: name, id or CRN; fixed", hidden=True),
    ] = None
    """A role that trusts instances, which the image is fetched in; null: as nobody."""
    subnet: Annotated[
        Annotated[str, Meta(min_length=1, max_length=512)] | None,
        fixed("subnet that instances are in: name, id or CRN; fixed", hidden=True),
    ] = None
    """Without one, instances have no network."""
    security_groups: Annotated[
        list[Annotated[str, Meta(min_length=1, max_length=512)]],
        Meta(max_length=MOST_GROUPS),
        given("security group of the instances: name, id or CRN", hidden=True),
    ] = field(default_factory=list)
    """By default, the default group of the VPC."""
    tags: Annotated[dict[str, str], given("a tag of the instance pool")] = field(
        default_factory=dict
    )
    node: Annotated[str, own(heading="NODE")] = ""
    """The machine that its instances are on."""
    image_digest: Annotated[str | None, own(shows_null=True)] = None
    """Of the image that instances are started with; null until it was fetched."""
    names: Annotated[dict[str, str], own(hidden=True)] = field(default_factory=dict)
    """The names of its role, subnet and security groups, by id; names never change."""
    vpc_id: Annotated[str | None, own(hidden=True)] = None
    generation: Annotated[int, own(hidden=True)] = 1
    """Counts the changes of `image` by its owner."""
    fetched: Annotated[int, own(hidden=True)] = 0
    """The generation to which `image_digest` belongs."""

    @property
    def crn(self) -> str:
        """Return the pool's CRN."""
        return INSTANCE_POOL.crn_of(self)

    @property
    def version(self) -> Version | None:
        """Return the version for the pool's instances; None until the current image is fetched."""
        if self.image_digest is None or self.fetched != self.generation:
            return None
        return Version(
            self.image_digest, self.command, self.environment, self.memory_mb, self.cpu_millis
        )


def check_pool(new: InstancePool, _old: InstancePool | None, _now: int) -> InstancePool:
    """Check the command, the environment and the lists of a new or changed pool; return the pool.

    Raise `InvalidInput`, naming the field, if one is not valid.
    """
    _check_words(new.command)
    _check_environment(new.environment)
    for name in ("ports", "security_groups"):
        values = getattr(new, name)
        if len(set(values)) != len(values):
            raise invalid_field(name, "each one once")
    if new.security_groups and new.subnet is None:
        raise invalid_field("security_groups", "they need a subnet")
    return new


def _check_words(words: Sequence[str]) -> None:
    """Raise `InvalidInput` if a command has a NUL character or is too long."""
    if any("\0" in each for each in words):
        raise invalid_field("command", "no NUL")
    if _bytes_of(*words) > MOST_TEXT_BYTES:
        raise invalid_field("command", f"at most {MOST_TEXT_BYTES} bytes")


def _check_environment(variables: Mapping[str, str]) -> None:
    """Raise `InvalidInput` if a variable is malformed, or there are too many or too long ones."""
    if len(variables) > MOST_VARIABLES:
        raise invalid_field("environment", f"at most {MOST_VARIABLES} variables")
    for name, value in variables.items():
        if not _VARIABLE.fullmatch(name) or "\0" in value:
            raise invalid_field(
                "environment", f"names of A-Z a-z 0-9 _, and no NUL: {name[:128]!a}"
            )
    if _bytes_of(*variables, *variables.values()) > MOST_TEXT_BYTES:
        raise invalid_field("environment", f"at most {MOST_TEXT_BYTES} bytes")


def _bytes_of(*texts: str) -> int:
    return sum(len(each.encode("utf-8", "surrogatepass")) + 1 for each in texts)


INSTANCE_POOL: Final = Resource(
    record=InstancePool,
    service=SERVICE,
    one="instance_pool",
    many="instance_pools",
    quota=50,
    filters=(Filter("name"),),
    # Creation, change and deletion are written by hand: they answer with other status codes, or
    # refer to resources of other families.
    methods=("list", "get"),
    actions={
        "create": "CreateInstancePool",
        "update": "UpdateInstancePool",
        "delete": "DeleteInstancePool",
    },
    more_actions=("GetInstance", "GetInstanceLogs", "ListInstances"),
    warnings=frozenset({NODE_LOST}),
    states={
        "active": "All instances of a pool are ready",
        "degraded": "Something is wrong with a pool, and is tried again",
    },
    state_data=lambda found: {
        "faults": [
            {"code": each.code, "message": each.message, "instance": each.subject or None}
            for each in found.faults
        ]
    },
    keeps_deleted=True,
    sample=lambda number: {"name": f"instance-pool-{number}", "image": "web:1"},
)
"""The instance pools of accounts."""


InstanceStatus = Literal["starting", "running", "unhealthy", "stopping", "stopped"]


class Instance(Record, frozen=True, kw_only=True):
    """One running copy of a pool's image.

    Its row is inserted before anything of the instance is on the machine, and deleted after all of
    it is gone.
    """

    pool: Annotated[Reference, own()]
    node: Annotated[str, own(heading="NODE")]
    status: Annotated[InstanceStatus, own(heading="STATUS")] = "starting"
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
    """The last times at which its program ended, the newest last."""
    not_before: Annotated[int | None, own(hidden=True)] = None
    """When its program may be started again; for a leaving instance, when the program may be
    stopped."""

    @property
    def is_leaving(self) -> bool:
        """Return True if the instance is being stopped permanently."""
        return self.status == "stopping"

    @property
    def is_ready(self) -> bool:
        """Return True if the instance accepts connections."""
        return self.status == "running"


INSTANCE: Final = Resource(
    record=Instance,
    service=SERVICE,
    one="instance",
    many="instances",
    key="id",
    methods=(),
    methods_with_events=(),
    refers={"pool": ReferenceTarget(INSTANCE_POOL, INSTANCE_POOL.action("get"))},
)
"""The instances of pools. Rights to them are rights to their pool."""
