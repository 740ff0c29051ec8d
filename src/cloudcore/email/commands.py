"""``entrepot suppressions``, ``entrepot ip-pools`` and ``entrepot templates``."""

from __future__ import annotations

from typing import Final

from cloudcore.command_line import Act, Option
from cloudcore.email.ip_pool import IP_POOL
from cloudcore.email.suppression import SUPPRESSION
from cloudcore.email.template import TEMPLATE
from cloudcore.resources.nouns import noun_of

COMMANDS: Final = (
    noun_of(SUPPRESSION, words="addresses that get no mail of the account"),
    noun_of(IP_POOL, words="groups of dedicated IP addresses to send mail from"),
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
