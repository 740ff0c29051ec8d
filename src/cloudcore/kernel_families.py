"""The families of the kernel itself: shared chores, metering, and quotas.

`KERNEL` has the tables and chores that all families share, and no routes. `METERING` counts
requests, samples what is stored, and serves ``/v1/usage``. `QUOTAS` serves ``/v1/quotas``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.family import Family
from cloudcore.iam.vocabulary import ResourceKind
from cloudcore.metering.sku import REQUESTS_OF_API
from cloudcore.quotas.quota import NEARLY_REACHED, REACHED

if TYPE_CHECKING:
    from cloudcore.kernel_chores import KernelNeeds
    from cloudcore.metering.needs import MeteringNeeds
    from cloudcore.quotas.needs import QuotaNeeds

KERNEL: Final[Family[KernelNeeds]] = Family(name="kernel", runs="cloudcore.kernel_chores:KERNEL")


METERING: Final[Family[MeteringNeeds]] = Family(
    name="metering",
    title="Usage",
    runs="cloudcore.kernel_runtimes:METERING",
    paths=("/v1/usage",),
    skus=(REQUESTS_OF_API,),
    resource_kinds=(
        ResourceKind(
            crn="crn:metering:<region>:<account>:usage/*",
            actions=("metering:GetUsage",),
            summaries={"metering:GetUsage": "Read what the account has used, by hour or day."},
        ),
    ),
)


QUOTAS: Final[Family[QuotaNeeds]] = Family(
    name="quotas",
    title="Quotas",
    runs="cloudcore.kernel_runtimes:QUOTAS",
    paths=("/v1/quotas",),
    resource_kinds=(
        ResourceKind(
            crn="crn:quotas:<region>:<account>:quota/<name>",
            actions=(
                "quotas:GetQuota",
                "quotas:ListQuotas",
                "quotas:ResetQuota",
                "quotas:SetQuota",
            ),
        ),
    ),
    other_events=(NEARLY_REACHED, REACHED),
    event_words={
        NEARLY_REACHED: "An account has most of what it may have of something",
        REACHED: "An account has all that it may have of something",
    },
)
