"""The compute family: instances, and pools of instances that run one image."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.compute.instance_pool import (
    CPU_HOURS,
    INSTANCE_POOL,
    INSTANCES,
    MEMORY,
    MEMORY_HOURS,
    SERVICE,
)
from cloudcore.family import CommandGroup, Family

if TYPE_CHECKING:
    from cloudcore.compute.needs import ComputeNeeds


COMPUTE: Final[Family[ComputeNeeds]] = Family(
    name=SERVICE,
    title="Instance pools",
    runs="cloudcore.compute.runtime:RUNTIME",
    resources=(INSTANCE_POOL,),
    skus=(MEMORY_HOURS, CPU_HOURS),
    quotas=(INSTANCES, MEMORY),
    commands=(CommandGroup("use the platform's services", ("cloudcore.compute.commands",)),),
)
