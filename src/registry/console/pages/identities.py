"""Sending identities of email, with what the owner of a domain publishes."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cloudcore.email.resources import SENDING_IDENTITY
from registry.console.described_nouns import deletion, noun_of
from registry.console.noun_pages import Act

IDENTITY: Final = replace(
    noun_of(SENDING_IDENTITY),
    acts=(
        Act(
            "verify",
            "Verify",
            "email:VerifyIdentity",
            "Its record is being looked for, or a new link is on its way. Load the page again in a"
            " moment.",
            label="Verify it now",
            can=lambda identity: identity["kind"] == "domain" or identity["status"] != "verified",
        ),
        deletion(
            SENDING_IDENTITY.noun,
            SENDING_IDENTITY.action("delete"),
            "Mail from it is refused from then on. A new one has another key.",
        ),
    ),
    parts="noun_identity.html",
)
