"""The audit family: stores the events of all other families for a time; owners can read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.family import Family
from cloudcore.iam.vocabulary import ResourceKind

if TYPE_CHECKING:
    from cloudcore.audit.log import AuditNeeds


AUDIT: Final[Family[AuditNeeds]] = Family(
    name="audit",
    runs="cloudcore.audit.runtime:RUNTIME",
    paths=("/v1/audit-events",),
    resource_kinds=(
        ResourceKind(
            crn="crn:audit:<region>:<account>:event/<id>",
            actions=("audit:GetAuditEvent", "audit:ListAuditEvents"),
        ),
    ),
)
