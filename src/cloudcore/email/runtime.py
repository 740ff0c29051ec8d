"""The email family at run time: its routes, job kinds, schedules and the mail server."""

from __future__ import annotations

from typing import Final

from cloudcore.email import (
    dedicated_ips,
    identity_routes,
    identity_verification,
    sender_rows,
    sending_identities,
    suppressions,
    templates,
    unsubscribe_routes,
)
from cloudcore.email.bounces.bounces import take_return_mail
from cloudcore.email.messages import routes as message_routes
from cloudcore.email.messages import rows as message_rows
from cloudcore.email.messages.bodies import MESSAGES
from cloudcore.email.messages.delivery import Postman
from cloudcore.email.needs import EmailNeeds, open_needs
from cloudcore.family import Runtime
from cloudcore.jobs.schedule import scheduled
from cloudcore.resources.routes import handlers_of

RUNTIME: Final[Runtime[EmailNeeds]] = Runtime(
    open=open_needs,
    begin=take_return_mail,
    routes=handlers_of(
        suppressions.SUPPRESSIONS,
        dedicated_ips.IP_POOL_METHODS,
        dedicated_ips.DEDICATED_IP_METHODS,
        dedicated_ips,
        sending_identities.IDENTITIES,
        identity_routes,
        templates.TEMPLATES,
        templates,
        MESSAGES,
        message_routes,
        unsubscribe_routes,
    ),
    job_kinds=lambda needs: (
        identity_verification.WORK.job_kind(needs),
        Postman(needs=needs).job_kind(),
    ),
    schedule=scheduled(
        (
            "email.identity_checks",
            identity_verification.EVERY_SECONDS,
            identity_verification.check_due,
        ),
        ("email.dedicated_ips", dedicated_ips.EVERY_SECONDS, dedicated_ips.log_unlisted),
    ),
    expiry=(message_rows.forget_content, message_rows.forget, message_rows.forget_rates),
    uses=(
        suppressions.ROWS.counted,
        sender_rows.IP_POOL_ROWS.counted,
        sender_rows.DEDICATED_IP_ROWS.counted,
        sender_rows.IDENTITY_ROWS.counted,
        templates.ROWS.counted,
        message_rows.WAITING_MESSAGES,
    ),
)
