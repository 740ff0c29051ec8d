"""``entrepot audit``: who did what in the account or organization, when and from where."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

from registry.cli.acting import by_column
from registry.cli.api import PAGE_ROWS, Record, open_client
from registry.cli.audit_names import unknown_names
from registry.cli.failure import CommandFailure, Misuse
from registry.cli.options import Verbs, add_noun, add_registry, add_verb
from registry.cli.output import (
    Column,
    column,
    document_text,
    echo,
    time_text,
    write_records,
)
from registry.cli.rights.people import find_organization, open_person

_PATH: Final = "/v1/audit-events"
_SPANS: Final = {"m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}


def _outcome(event: Mapping[str, Any]) -> str:
    times = event["times"]
    return f"{event['outcome']} {times} times" if times > 1 else str(event["outcome"])


_COLUMNS: Final = (
    column("WHEN", "occurred_at", time_text),
    column("ACTION", "action"),
    Column("OUTCOME", _outcome),
    column("RESOURCE", "resources"),
    by_column("principal", "source"),
    column("FROM", "source_ip"),
    column("DETAILS", "details"),
)


def add_parsers(commands: Verbs) -> None:
    """Add ``audit`` and its commands."""
    verbs = add_noun(commands, "audit", "who did what in the account, or an organization")
    listing = add_verb(verbs, "list", _list, "list changes, sign-ins and refusals, newest first")
    _add_filter(listing)
    listing.add_argument(
        "--limit", type=int, default=100, metavar="N", help="how many at most (100); 0: all"
    )
    export = verbs.add_parser(
        "export",
        help="write events as JSON lines, newest first",
        description="Write events as JSON lines, newest first.",
    )
    add_registry(export)
    _add_filter(export)
    export.add_argument("--to", type=Path, metavar="FILE", help="a new file (standard output)")
    export.add_argument(
        "--output", "-o", choices=("jsonl",), default="jsonl", help="JSON lines, the only way"
    )
    export.set_defaults(run=_export)


def _add_filter(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--organization",
        metavar="NAME",
        help="one that you own, by name or id: its people, and their sign-ins (the account)",
    )
    parser.add_argument(
        "--who", metavar="NAME", help="e-mail address, name of a service account, or CRN"
    )
    parser.add_argument("--action", metavar="ACTION", help="such as registry:PushImage, or iam:*")
    parser.add_argument(
        "--resource", metavar="NAME", help="a repository, or the CRN of anything; a * may end it"
    )
    parser.add_argument("--outcome", choices=("succeeded", "refused"), help="either (both)")
    parser.add_argument(
        "--since", metavar="TIME", help="RFC 3339 (2026-01-31T08:00:00Z), a date, or 90m, 24h, 7d"
    )
    parser.add_argument("--until", metavar="TIME", help="the same; the first moment left out")


def _list(options: argparse.Namespace) -> int:
    events = _events(options)
    write_records(islice(events, options.limit or None), _COLUMNS, options.output)
    return 0


def _told_if_none(events: Iterator[Record], options: argparse.Namespace) -> Iterator[Record]:
    """Yield the events; if there is none, tell which names of the filter are unknown."""
    is_any = False
    for event in events:
        is_any = True
        yield event
    if not is_any:
        for problem in unknown_names(options):
            sys.stderr.write(f"entrepot: no event: {problem}\n")


def _export(options: argparse.Namespace) -> int:
    lines = (document_text(event, options.output) for event in _events(options))
    if options.to is None:
        sys.stdout.writelines(lines)
        return 0
    first = list(islice(lines, 1))  # before the file, so that a refusal leaves none
    try:
        with options.to.open("x", encoding="utf-8") as file:
            file.writelines(chain(first, lines))
    except OSError as error:
        raise CommandFailure(f"cannot write {options.to}: {error.strerror}") from None
    echo(f"Wrote {options.to}", "table")
    return 0


def _events(options: argparse.Namespace) -> Iterator[Record]:
    now = datetime.now(UTC)
    query = {
        "who": options.who,
        "action": options.action,
        "resource": options.resource,
        "outcome": options.outcome,
        "since": moment(options.since, now),
        "until": moment(options.until, now),
        "limit": PAGE_ROWS,
    }
    if options.organization is None:
        return _told_if_none(open_client(options).rows(_PATH, "events", query), options)
    client = open_person(options)
    query["organization_id"] = find_organization(client, options)["id"]
    return _told_if_none(client.rows(_PATH, "events", query), options)


def moment(text: str | None, now: datetime) -> str | None:
    """Return a time as RFC 3339: one that is given, midnight (UTC) of a date, or so long ago.

    Raises:
        Misuse: it is none of these.

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
