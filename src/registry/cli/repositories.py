"""``entrepot repositories``: list, show, create, change, delete and restore repositories."""

from __future__ import annotations

import argparse
from typing import Any, Final

from cloudcore.uuids import parse_uuid
from registry.cli.acting import by_column
from registry.cli.api import ApiClient, Record, open_client
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.failure import Missing, Misuse
from registry.cli.listing import add_quiet, show_list
from registry.cli.options import Verbs, add_noun, add_repository, add_verb, repeatable
from registry.cli.output import (
    column,
    echo,
    printable,
    size_text,
    time_text,
    write_record,
)
from registry.cli.references import find_repository, repository_path
from registry.cli.tag_pairs import pairs

_COLUMNS: Final = (
    column("NAME", "name"),
    column("IMAGES", "image_count", is_number=True),
    column("TAGS", "tag_count", is_number=True),
    column("SIZE", "size_bytes", size_text, is_number=True),
    column("VISIBILITY", "visibility"),
    column("LAST PUSHED", "last_pushed_at", time_text),
)
_DELETED_COLUMNS: Final = (
    column("NAME", "name"),
    column("IMAGES", "image_count", is_number=True),
    column("SIZE", "size_bytes", size_text, is_number=True),
    column("DELETED", "deleted_at", time_text),
    by_column("deleted_by", "deleted_by_source"),
    column("RESTORABLE UNTIL", "restorable_until", time_text),
    column("ID", "id", is_whole=True),
)


def add_parsers(commands: Verbs) -> None:
    """Add ``repositories`` and its commands."""
    verbs = add_noun(commands, "repositories", "repositories of the account")
    listing = add_verb(verbs, "list", _list, "list repositories by name")
    listing.add_argument("--name-prefix", metavar="TEXT", help="only names that begin with TEXT")
    add_quiet(listing, "names")
    add_repository(add_verb(verbs, "show", _show, "show a repository"))
    words = "show the bytes a repository uses, and those that deleting it would free"
    add_repository(add_verb(verbs, "storage", _show_storage, words))
    create = add_verb(verbs, "create", _create, "create a repository")
    create.add_argument("name", metavar="NAME", help="without the account's handle")
    create.add_argument(
        "--kms-key", metavar="KEY", help="seals its blobs: name, id or CRN (the account's default)"
    )
    _add_fields(create)
    update = add_verb(verbs, "update", _update, "change a repository; its name stays")
    add_repository(update)
    _add_fields(update)
    deletion = add_verb(verbs, "delete", _delete, "delete a repository; it can be restored")
    add_repository(deletion)
    deletion.add_argument("--force", action="store_true", help="with the images it holds")
    add_confirmation(deletion)
    words = "list deleted repositories that can be restored"
    add_quiet(add_verb(verbs, "deleted", _list_deleted, words), "ids")
    restore = add_verb(verbs, "restore", _restore, "restore a deleted repository with its images")
    restore.add_argument("repository", metavar="REPOSITORY", help="name or id it had")


def _add_fields(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--description", metavar="TEXT", help='for persons; "" takes it away')
    repeatable(parser, "--tag", "--no-tags", "KEY=VALUE", "a tag of the repository itself")
    parser.add_argument(
        "--tag-mutability",
        choices=("mutable", "immutable"),
        help="whether image tags may move (mutable)",
    )
    repeatable(
        parser,
        "--immutable-tag-exclusion",
        "--no-immutable-tag-exclusions",
        "PATTERN",
        "image tags that may move all the same, such as 'latest' or 'dev-*'",
    )


def _fields(options: argparse.Namespace) -> dict[str, Any]:
    """Return the fields of a repository that the command line gives."""
    fields: dict[str, Any] = {}
    if options.description is not None:
        fields["description"] = options.description or None
    if options.tag is not None:
        fields["tags"] = pairs(options.tag)
    if options.tag_mutability is not None:
        fields["tag_mutability"] = options.tag_mutability
    if options.immutable_tag_exclusion is not None:
        fields["immutable_tag_exclusions"] = options.immutable_tag_exclusion
    return fields


def _list(options: argparse.Namespace) -> int:
    client = open_client(options)
    query = {"name_prefix": options.name_prefix}
    rows = client.rows("/v1/repositories", "repositories", query)
    return show_list(options, rows, _COLUMNS, lambda row: str(row["name"]))


def _show(options: argparse.Namespace) -> int:
    write_record(find_repository(open_client(options), options.repository), options.output)
    return 0


def _show_storage(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = repository_path(client, options.repository)
    write_record(client.call("GET", f"{path}/storage")["storage"], options.output)
    return 0


def _create(options: argparse.Namespace) -> int:
    document = {"name": options.name, **_fields(options)}
    if options.kms_key is not None:
        document["kms_key"] = options.kms_key
    made = open_client(options).create("/v1/repositories", document)["repository"]
    echo(f"Created {made['name']}; push to {made['uri']}:TAG", options.output, made)
    return 0


def _update(options: argparse.Namespace) -> int:
    fields = _fields(options)
    if not fields:
        raise Misuse(
            "say what is to change; 'entrepot repositories update --help' shows the options"
        )
    client = open_client(options)
    found = find_repository(client, options.repository)
    changed = client.call("PATCH", f"/v1/repositories/{found['id']}", fields)["repository"]
    echo(f"Changed {changed['name']}", options.output, changed)
    return 0


def _delete(options: argparse.Namespace) -> int:
    client = open_client(options)
    found = find_repository(client, options.repository)
    name, count = found["name"], found["image_count"]
    if count and not options.force:
        raise Misuse(f"{name} holds images ({count}); --force deletes it with them")
    confirm(options, f"Delete the repository {name} and the images it holds ({count})?")
    client.call("DELETE", f"/v1/repositories/{found['id']}", query={"force": options.force})
    echo(
        f"Deleted {name}; 'entrepot repositories deleted' shows how long it can be restored",
        options.output,
    )
    return 0


def _list_deleted(options: argparse.Namespace) -> int:
    rows = open_client(options).rows("/v1/repositories/deleted", "repositories")
    return show_list(options, rows, _DELETED_COLUMNS, lambda row: str(row["id"]))


def _restore(options: argparse.Namespace) -> int:
    client = open_client(options)
    found = _find_deleted(client, options.repository)
    restored = client.create(f"/v1/repositories/{found['id']}/restore")["repository"]
    words = f"Restored {restored['name']}; images in it: {restored['image_count']}"
    echo(words, options.output, restored)
    return 0


def _find_deleted(client: ApiClient, written: str) -> Record:
    """Return the deleted repository of a name or id.

    Raises:
        Missing: there is none.
        Misuse: several have the name.

    """
    rows = client.rows("/v1/repositories/deleted", "repositories")
    sought = parse_uuid(written) or written
    found = [row for row in rows if sought in (row["name"], row["id"])]
    if not found:
        raise Missing(
            f"no deleted repository {printable(written)!r} can be restored; "
            "'entrepot repositories deleted' lists those that can"
        )
    if len(found) > 1:
        ids = ", ".join(f"{row['id']} ({time_text(row['deleted_at'])})" for row in found)
        raise Misuse(f"several repositories of that name were deleted; name one by its id: {ids}")
    return found[0]
