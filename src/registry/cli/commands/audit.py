"""``entrepot audit``: list and export the audit log of the account or an organization."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from pathlib import Path
from typing import Final

from cloudcore.command_failures import CommandFailure, Missing, Misuse
from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Noun, Option, Record
from cloudcore.commands.records import by_column, document_text, printable
from cloudcore.identity.commands.options import ORGANIZATIONS_PATH, find_organization, person
from cloudcore.identity.commands.organizations import USERS
from cloudcore.identity.commands.policies import POLICIES
from cloudcore.identity.commands.roles import ROLES
from cloudcore.identity.commands.service_accounts import SERVICE_ACCOUNTS
from registry.cli.client.api import PAGE_ROWS, client_of
from registry.cli.client.references import find_repository

_SPANS: Final = {"m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}
_KINDS: Final = {
    "service-account": SERVICE_ACCOUNTS,
    "role": ROLES,
    "policy": POLICIES,
    "user": USERS,
}
_DEFAULT_LIMIT: Final = 100


def _outcome(event: Record) -> str:
    times = event["times"]
    return f"{event['outcome']} {times} times" if times > 1 else str(event["outcome"])


_COLUMNS: Final = (
    Cell("WHEN", "occurred_at", "time"),
    "action",
    Cell("OUTCOME", shown=_outcome),
    Cell("RESOURCE", "resources"),
    by_column("principal", "source"),
    Cell("FROM", "source_ip"),
    "details",
)
_FILTER: Final = (
    Option(
        "organization",
        "one that you own, by name or id: its people, and their sign-ins (the account)",
        metavar="NAME",
    ),
    Option("who", "e-mail address, name of a service account, or CRN", metavar="NAME"),
    Option("action", "such as registry:PushImage, or iam:*", metavar="ACTION"),
    Option("resource", "a repository, or the CRN of anything; a * may end it", metavar="NAME"),
    Option("outcome", "either (both)", choices=("succeeded", "refused")),
    Option("since", "RFC 3339 (2026-01-31T08:00:00Z), a date, or 90m, 24h, 7d", metavar="TIME"),
    Option("until", "the same; the first moment left out", metavar="TIME"),
)


def _list(run: Invocation) -> None:
    limit = run.values.get("limit", _DEFAULT_LIMIT)
    run.show_rows(islice(_events(run), limit or None), _COLUMNS)


def _export(run: Invocation) -> None:
    if run.form not in ("table", "jsonl"):
        raise Misuse("events are exported as JSON lines, --output jsonl")
    lines = (document_text(event, "jsonl") for event in _events(run))
    if "to" not in run.values:
        sys.stdout.writelines(lines)
        return
    name = run.values["to"]
    first = list(islice(lines, 1))  # before the file is created, so that a refusal leaves no file
    try:
        with Path(name).open("x", encoding="utf-8") as file:
            file.writelines(chain(first, lines))
    except OSError as error:
        raise CommandFailure(f"cannot write {name}: {error.strerror}") from None
    sys.stdout.write(f"Wrote {printable(name)}\n")


def _events(run: Invocation) -> Iterator[Record]:
    """Yield the events that match the filter; if none does, warn of wrong names in the filter."""
    now, given = datetime.now(UTC), run.values
    query = {name: given.get(name) for name in ("who", "action", "resource", "outcome")}
    query |= {name: parse_moment(given.get(name), now) for name in ("since", "until")}
    client = run.client
    if "organization" in given:
        client = person(run)
        query["organization_id"] = find_organization(client, run.sign_in, given["organization"])[
            "id"
        ]
    is_any = False
    for event in client.rows(run.path, "events", {**query, "limit": PAGE_ROWS}):
        is_any = True
        yield event
    if not is_any:
        for problem in _unknown_names(run):
            run.warn(f"no event: {problem}")


def parse_moment(text: str | None, now: datetime) -> str | None:
    """Convert a time, a date (midnight UTC) or a time span before `now` to RFC 3339.

    Return None for None. Raise `Misuse` if the text is none of these.
    """
    if text is None:
        return None
    if text[:-1].isascii() and text[:-1].isdigit() and len(text) < 6 and text[-1] in _SPANS:
        return (now - timedelta(seconds=int(text[:-1]) * _SPANS[text[-1]])).isoformat()
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise Misuse(
            f"{text!r} is no time: write 2026-01-31T08:00:00Z, 2026-01-31, 90m, 24h or 7d"
        ) from None
    return (found if found.tzinfo else found.replace(tzinfo=UTC)).isoformat()


def _unknown_names(run: Invocation) -> Iterator[str]:
    """Yield a warning for each unknown name in the filter.

    Names that the caller may not look up are skipped: they may exist.
    """
    for field, check in (("who", _check_principal), ("resource", _check_resource)):
        written = run.values.get(field)
        if written is None or written.endswith("*"):
            continue
        try:
            problem = check(run, written)
        except CommandFailure:
            continue
        if problem:
            yield problem


def _check_principal(run: Invocation, written: str) -> str:
    if "organization" in run.values:
        return _check_member(run, written)
    if written.startswith("crn:"):
        return _check_crn(run, written)
    try:
        run.find(USERS if "@" in written else SERVICE_ACCOUNTS, written)
    except Missing as error:
        problem = str(error)
    else:
        return ""
    try:
        crn = run.find(ROLES, written)["crn"]
    except Missing:
        return problem
    return f"{printable(written)} is a role, which is named by its CRN here: --who {crn}"


def _check_member(run: Invocation, written: str) -> str:
    client = person(run)
    organization = find_organization(client, run.sign_in, run.values["organization"])
    members = client.rows(f"{ORGANIZATIONS_PATH}/{organization['id']}/members", "members")
    if "@" not in written or any(row["user"]["name"] == written.lower() for row in members):
        return ""
    return f"{organization['name']} has no member {printable(written)!r}"


def _check_resource(run: Invocation, written: str) -> str:
    if written.startswith("crn:"):
        return _check_crn(run, written)
    if "organization" in run.values:
        return ""
    try:
        find_repository(client_of(run), written)
    except Missing as error:
        return f"--resource takes a CRN, or the name of a repository, and {error}"
    return ""


def _check_crn(run: Invocation, crn: str) -> str:
    """Return a warning if a CRN is unknown, else "".

    Only CRNs of repositories and of the kinds in `_KINDS` are checked.
    """
    _, _, rest = crn.partition(":")
    service, _, _, resource = (*rest.split(":", 3), "", "", "")[:4]
    kind, _, name = resource.partition("/")
    try:
        if service == "iam" and kind in _KINDS:
            run.find(_KINDS[kind], crn)
        elif (service, kind) == ("registry", "repository") and name:
            find_repository(client_of(run), name)
    except Missing as error:
        return str(error)
    return ""


AUDIT: Final = Noun(
    noun="audit",
    words="who did what in the account, or an organization",
    path="/v1/audit-events",
    is_single=True,
    has_show=False,
    commands=(
        Command(
            verb="list",
            words="list changes, sign-ins and refusals, newest first",
            options=(*_FILTER, Option("limit", "how many at most (100); 0: all", "number")),
            run=_list,
        ),
        Command(
            verb="export",
            words="write events as JSON lines, newest first",
            options=(*_FILTER, Option("to", "a new file (standard output)", metavar="FILE")),
            run=_export,
        ),
    ),
)

COMMANDS: Final = (AUDIT,)
