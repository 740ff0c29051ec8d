"""The commands of email: ``suppressions``, ``ip-pools``, ``dedicated-ips`` and so on."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Option, method_command
from cloudcore.email.dedicated_ip import DEDICATED_IP
from cloudcore.email.resources import IP_POOL, MESSAGE, SENDING_IDENTITY, SUPPRESSION, TEMPLATE
from cloudcore.resources.commands import noun_of

_RECORD: Final = (
    Cell("PUBLISH TXT AT", "record_name", "whole"),
    Cell("VALUE", "record_value", "whole"),
)


def _show_record(run: Invocation) -> bool:
    """Show the DNS record to publish for a domain; return False if the identity has a fault."""
    found = run.record
    if "dkim" in found:
        run.show_rows([found["dkim"]], _RECORD)
    else:
        run.say("An address has no record: its reader opens the link of a mail")
    for fault in found["faults"]:
        run.warn(f"{fault['code']}: {fault['message']}")
    return not found["faults"]


_SEND: Final = Command(
    verb="send",
    words="send a message",
    is_on_list=True,
    takes_key=True,
    options=(
        Option("from", "who it is from: an address of a verified identity", is_required=True),
        Option("to", "who gets it", "many", metavar="ADDRESS"),
        Option("cc", "who gets a copy", "many", metavar="ADDRESS"),
        Option(
            "bcc", "who gets a copy that the message does not tell of", "many", metavar="ADDRESS"
        ),
        Option("subject", "its subject"),
        Option("text", "its body as text", "file"),
        Option("html", "its body as HTML", "file"),
        Option("template", "email template instead of subject and body: name, id or CRN"),
        Option("variables", "variables of the template, as a JSON object in a file", "document"),
        Option("headers", "a header field, X-… or List-…", "tags", metavar="NAME=VALUE"),
    ),
    answer="message",
    said="Accepted {id}; 'entrepot messages show {id}' says what becomes of it",
)
COMMANDS: Final = (
    noun_of(SUPPRESSION, words="addresses that get no mail of the account"),
    noun_of(IP_POOL, words="groups of dedicated IP addresses to send mail from"),
    noun_of(
        DEDICATED_IP,
        words="addresses that only this account sends mail from",
        commands=(
            method_command(
                "pause", "accept no more mail for one", "dedicated_ip", "Paused {address}"
            ),
            method_command(
                "resume", "go on with one that is paused", "dedicated_ip", "Resumed {address}"
            ),
        ),
    ),
    noun_of(
        SENDING_IDENTITY,
        words="domains and addresses to send mail from",
        created="{value} is {status}; 'entrepot identities record {value}' says what it waits for",
        commands=(
            Command(
                verb="record", words="show the record that a domain publishes", run=_show_record
            ),
            method_command(
                "verify",
                "look for the record of a domain now, or send an address a new link",
                "identity",
                "Checking {value}",
            ),
        ),
    ),
    noun_of(
        TEMPLATE,
        words="subjects and bodies of mail, with places for variables",
        commands=(
            Command(
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
    replace(
        noun_of(MESSAGE, words="mail that was sent, and what became of it", commands=(_SEND,)),
        create=None,
    ),
)
