"""``entrepot mirror``: upstream registries whose images are cached under a prefix."""

from __future__ import annotations

import argparse
from typing import Any, Final

from registry.cli import mirror_warm
from registry.cli.api import ApiClient, Record, open_client
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.failure import FAILED, Misuse
from registry.cli.listing import add_quiet, show_list
from registry.cli.mirror_rules import RULE
from registry.cli.options import Run, Verbs, add_noun, add_verb
from registry.cli.output import column, echo, size_text, time_text, write_record
from registry.cli.rights.lookup import find
from registry.cli.secret_text import read_secret

_COLUMNS: Final = (
    column("PREFIX", "prefix"),
    column("UPSTREAM", "upstream_url"),
    column("ENABLED", "enabled"),
    column("HITS", "stats", lambda stats: str(stats["hits"]), is_number=True),
    column("MISSES", "stats", lambda stats: str(stats["misses"]), is_number=True),
    column("SAVED", "stats", lambda stats: size_text(stats["saved_bytes"]), is_number=True),
    column("CACHED", "stats", lambda stats: size_text(stats["cached_bytes"]), is_number=True),
    column("FAULTS", "faults", lambda faults: ", ".join(fault["code"] for fault in faults)),
    column("LAST SUCCESS", "last_success_at", time_text),
)
_TYPED: Final = "The secret is typed without an echo, or read from the standard input."
_NOTHING: Final = 0
"""Of a number: no limit."""


def add_parsers(commands: Verbs) -> None:
    """Add ``mirror`` and its commands."""
    verbs = add_noun(commands, "mirror", "cache the images of other registries under a prefix")
    add_quiet(add_verb(verbs, "list", _list, "list the rules by prefix"), "prefixes")
    _add(verbs, "show", _show, "show a rule, with what it saved and its faults")
    create = add_verb(verbs, "create", _create, "cache the images of a registry under a prefix")
    create.epilog = _TYPED
    create.add_argument("prefix", metavar="PREFIX", help="such as docker-hub, or mirrors/quay")
    create.add_argument("--upstream", required=True, metavar="URL", help="such as https://quay.io")
    _add_fields(create)
    update = _add(verbs, "update", _update, "change a rule; its prefix and what is cached stay")
    update.epilog = _TYPED
    update.add_argument(
        "--upstream", metavar="URL", help="another one; give --username or --no-credential too"
    )
    _add_fields(update)
    deletion = _add(verbs, "delete", _delete, "delete a rule; what it has cached stays")
    add_confirmation(deletion)
    test = _add(verbs, "test", _test, "ask the upstream whether it answers; exit 1 if it does not")
    test.add_argument(
        "image",
        metavar="IMAGE[:TAG]",
        nargs="?",
        help="ask for this image of the upstream, such as library/alpine:3",
    )
    mirror_warm.add_parser(verbs)


def _add(verbs: Verbs, verb: str, run: Run, words: str) -> argparse.ArgumentParser:
    parser = add_verb(verbs, verb, run, words)
    parser.add_argument("rule", metavar="PREFIX", help="of the rule, or its id or CRN")
    return parser


def _add_fields(parser: argparse.ArgumentParser) -> None:
    """Add what can be changed later, besides the upstream."""
    parser.add_argument(
        "--upstream-prefix",
        metavar="TEXT",
        help="beginning of the names at the upstream that is left out here (none)",
    )
    credential = parser.add_mutually_exclusive_group()
    credential.add_argument(
        "--username", metavar="NAME", help="ask the upstream as NAME; its secret is asked for"
    )
    credential.add_argument(
        "--no-credential", action="store_true", help="ask the upstream without a credential"
    )
    for option, metavar, words in (
        ("--tag-ttl-seconds", "N", "serve a tag for N seconds without a look upstream (3600)"),
        ("--negative-ttl-seconds", "N", "remember for N seconds that there is no such image (60)"),
        ("--keep-unpulled-days", "N", "delete images that were not pulled for N days (0: never)"),
        ("--max-bytes", "N", "above N bytes, delete what was pulled longest ago (0: no limit)"),
    ):
        parser.add_argument(option, metavar=metavar, type=int, help=words)
    parser.add_argument(
        "--enabled",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="fetch from the upstream; else only what is cached is served",
    )


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a rule that the command line gives; ask for the secret."""
    given: dict[str, Any] = {
        "upstream_url": options.upstream,
        "upstream_prefix": options.upstream_prefix,
        "tag_ttl_seconds": options.tag_ttl_seconds,
        "negative_ttl_seconds": options.negative_ttl_seconds,
        "enabled": options.enabled,
    }
    fields = {name: value for name, value in given.items() if value is not None}
    for name in ("keep_unpulled_days", "max_bytes"):
        value = getattr(options, name)
        if value is not None:
            fields[name] = None if value == _NOTHING else value
    if options.no_credential:
        fields["credential"] = None
    elif options.username is not None:
        secret = read_secret(f"Secret of {options.username}: ", "secret")
        fields["credential"] = {"username": options.username, "secret": secret}
    return fields


def _find(options: argparse.Namespace) -> tuple[ApiClient, Record, str]:
    """Return a client, the rule that the command line names, and its path."""
    client = open_client(options)
    found = find(client, RULE, options.rule)
    return client, found, f"{RULE.path}/{found['id']}"


def _list(options: argparse.Namespace) -> int:
    rows = open_client(options).rows(RULE.path, RULE.fields)
    return show_list(options, rows, _COLUMNS, lambda row: str(row["prefix"]))


def _show(options: argparse.Namespace) -> int:
    write_record(_find(options)[1], options.output)
    return 0


def _create(options: argparse.Namespace) -> int:
    fields = {"prefix": options.prefix, **_fields(options)}
    made = open_client(options).create(RULE.path, fields)[RULE.field]
    words = f"Created {made['prefix']}; pull images of {made['upstream_url']} as {made['uri']}/…"
    echo(words, options.output, made)
    return 0


def _update(options: argparse.Namespace) -> int:
    changes = _fields(options)
    if not changes:
        raise Misuse("say what is to change; 'entrepot mirror update --help' shows what can")
    client, found, path = _find(options)
    changed = client.call("PATCH", path, changes)[RULE.field]
    echo(f"Changed {found['prefix']}", options.output, changed)
    return 0


def _delete(options: argparse.Namespace) -> int:
    client, found, path = _find(options)
    prefix = found["prefix"]
    confirm(options, f"Delete the rule of {prefix}? Nothing new is cached then.")
    client.call("DELETE", path)
    echo(f"Deleted the rule of {prefix}; what it has cached stays", options.output)
    return 0


def _test(options: argparse.Namespace) -> int:
    client, _, path = _find(options)
    asked = None
    if options.image is not None:
        repository, _, tag = options.image.partition(":")
        asked = {"repository": repository, "tag": tag or "latest"}
    tested = client.call("POST", f"{path}/test", asked)
    how = "ok" if tested["ok"] else f"failed at {tested['stage']}"
    status = f", status {tested['http_status']}" if tested["http_status"] else ""
    words = f"{how} after {tested['latency_ms']} ms{status}: {tested['message']}"
    echo(words, options.output, tested)
    return 0 if tested["ok"] else FAILED
