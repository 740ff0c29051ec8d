"""The email family: sending identities, messages, suppressions, templates, dedicated IPs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cloudcore.email.dedicated_ip import DEDICATED_IP, PAUSED
from cloudcore.email.resources import (
    CONFIRM,
    FAILED,
    IP_POOL,
    MESSAGE,
    MESSAGES,
    SENDING_IDENTITY,
    SUPPRESSION,
    TEMPLATE,
    UNSUBSCRIBE,
    VERIFIED,
)
from cloudcore.family import CommandGroup, Family

if TYPE_CHECKING:
    from cloudcore.email.needs import EmailNeeds


EMAIL: Final[Family[EmailNeeds]] = Family(
    name="email",
    runs="cloudcore.email.runtime:RUNTIME",
    paths=("/v1/email-unsubscriptions", "/v1/identity-confirmations"),
    resources=(SUPPRESSION, IP_POOL, DEDICATED_IP, SENDING_IDENTITY, TEMPLATE, MESSAGE),
    skus=(MESSAGES,),
    recorded_actions=(CONFIRM,),
    event_types_by_action={UNSUBSCRIBE: "email.suppression.created"},
    other_events=(VERIFIED, FAILED, PAUSED),
    event_words={
        PAUSED: "A dedicated IP sends no more, as too much of its mail bounced",
        VERIFIED: "Mail may be sent from a domain or an address",
        FAILED: "The DKIM record of a domain is not there",
    },
    commands=(CommandGroup("use the platform's services", ("cloudcore.email.commands",)),),
)
