"""``entrepot suppressions``, ``ip-pools``, ``dedicated-ips``, ``identities`` and ``templates``."""

from __future__ import annotations

from typing import Final

from cloudcore.command_line import Act, Option
from cloudcore.email.dedicated_ip import DEDICATED_IP
from cloudcore.email.ip_pool import IP_POOL
from cloudcore.email.sending_identity import SENDING_IDENTITY
from cloudcore.email.suppression import SUPPRESSION
from cloudcore.email.template import TEMPLATE
from cloudcore.resources.nouns import noun_of

COMMANDS: Final = (
    noun_of(SUPPRESSION, words="addresses that get no mail of the account"),
    noun_of(IP_POOL, words="groups of dedicated IP addresses to send mail from"),
    noun_of(
        DEDICATED_IP,
        words="addresses that only this account sends mail from",
        acts=(
            Act(
                verb="pause",
                words="accept no more mail for one",
                path="pause",
                takes_key=True,
                answer="dedicated_ip",
                said="Paused {address}",
            ),
            Act(
                verb="resume",
                words="go on with one that is paused",
                path="resume",
                takes_key=True,
                answer="dedicated_ip",
                said="Resumed {address}",
            ),
        ),
    ),
    noun_of(
        SENDING_IDENTITY,
        words="domains and addresses to send mail from",
        acts=(
            Act(
                verb="verify",
                words="look for the record of a domain now, or send an address a new link",
                path="verify",
                takes_key=True,
                answer="identity",
                said="Checking {value}",
            ),
        ),
    ),
    noun_of(
        TEMPLATE,
        words="subjects and bodies of mail, with places for variables",
        acts=(
            Act(
                verb="preview",
                words="show what a message would say",
                path="preview",
                options=(
                    Option(
                        "variables", "variables by name, as a JSON object in a file", "document"
                    ),
                ),
                answer="preview",
            ),
        ),
    ),
)
