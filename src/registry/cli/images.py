"""``entrepot images``; the modules `manifest`, `referrers` and `pins` add more commands to it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, Final

from registry.cli import manifest, pins, referrers
from registry.cli.acting import by_column
from registry.cli.api import PAGE_ROWS, ApiClient, Record, open_client
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.deletion import delete_items
from registry.cli.failure import Missing, Misuse
from registry.cli.items import find_items, items_in
from registry.cli.listing import add_full_digests, add_quiet, show_list
from registry.cli.options import Verbs, add_image, add_noun, add_repository, add_verb
from registry.cli.outcomes import Line, batches, failed, line, write_outcome
from registry.cli.output import column, size_text, time_text, write_record
from registry.cli.references import (
    check_tag,
    image_path,
    is_image,
    parse_typed_reference,
    repository_path,
)
from registry.cli.short_digests import is_short_digest

_COLUMNS: Final = (
    column("DIGEST", "digest", is_whole=True, has_digests=True),
    column("TAGS", "tags"),
    column("SIZE", "size_bytes", size_text, is_number=True),
    column("PUSHED", "pushed_at", time_text),
    column("LAST PULLED", "last_pulled_at", time_text),
)
_DELETED_COLUMNS: Final = (
    column("DIGEST", "digest", is_whole=True, has_digests=True),
    column("TAGS", "tags"),
    column("SIZE", "size_bytes", size_text, is_number=True),
    column("DELETED", "deleted_at", time_text),
    by_column("deleted_by", "deleted_by_source"),
    column("RESTORABLE UNTIL", "restorable_until", time_text),
)


def add_parsers(commands: Verbs) -> None:
    """Add ``images`` and its commands."""
    verbs = add_noun(commands, "images", "images of a repository")
    listing = add_verb(verbs, "list", _list, "list images, the newest first")
    add_repository(listing)
    which = listing.add_mutually_exclusive_group()
    which.add_argument("--all", "-a", action="store_true", help="those without a tag too")
    which.add_argument("--tagged", action="store_true", help="only images with a tag (so it is)")
    which.add_argument("--untagged", action="store_true", help="only images without")
    which.add_argument("--tag-prefix", metavar="TEXT", help="only with a tag that begins with TEXT")
    listing.add_argument("--limit", type=_count, metavar="N", help="at most N (all)")
    add_quiet(listing, "references, with whole digests")
    add_full_digests(listing)
    add_image(add_verb(verbs, "show", _show, "show an image"))
    add_image(
        add_verb(
            verbs, "storage", _show_storage, "show the bytes that deleting an image would free"
        )
    )
    _add_deletion(verbs)
    deleted = add_verb(verbs, "deleted", _list_deleted, "list images that can be restored")
    add_repository(deleted)
    add_quiet(deleted, "references, with whole digests")
    add_full_digests(deleted)
    restore = add_verb(verbs, "restore", _restore, "restore deleted images with their tags")
    restore.add_argument("image", metavar="REPOSITORY[@DIGEST]")
    restore.add_argument("digests", metavar="DIGEST", nargs="*", help="of the same repository")
    add_full_digests(restore)
    manifest.add_parsers(verbs)
    referrers.add_parsers(verbs)
    pins.add_parsers(verbs)


def _add_deletion(verbs: Verbs) -> None:
    deletion = add_verb(
        verbs,
        "delete",
        _delete,
        "delete images by digest, with their tags; or tags, whose images stay",
    )
    deletion.add_argument("image", metavar="REPOSITORY[:TAG|@DIGEST]")
    deletion.add_argument("items", metavar="DIGEST|TAG", nargs="*", help="of the same repository")
    deletion.add_argument(
        "--force", action="store_true", help="even if they are pinned, or an index lists them"
    )
    add_full_digests(deletion)
    add_confirmation(deletion)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError("a number, 1 or more")
    return int(text)


def _list(options: argparse.Namespace) -> int:
    client = open_client(options)
    query = {
        "tag_status": "any" if options.all else "untagged" if options.untagged else "tagged",
        "tag_prefix": options.tag_prefix,
        "limit": min(options.limit or PAGE_ROWS, PAGE_ROWS),
    }
    if options.tag_prefix is not None:
        del query["tag_status"]
    path = repository_path(client, options.repository)
    rows: Iterator[Record] = client.rows(f"{path}/images", "images", query)
    first = next(rows, None)
    if first is None and query.get("tag_status") == "tagged":
        sys.stderr.write("entrepot: no image has a tag; --all lists those without\n")
    shown = islice(chain([] if first is None else [first], rows), options.limit)
    return show_list(options, shown, _COLUMNS, _reference_in(options))


def _reference_in(options: argparse.Namespace) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that names an image of the repository as commands take it."""
    return lambda image: f"{options.repository}@{image['digest']}"


def _show(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = image_path(client, options.image)
    write_record(client.call("GET", path)["image"], options.output)
    return 0


def _show_storage(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = image_path(client, options.image)
    write_record(client.call("GET", f"{path}/storage")["storage"], options.output)
    return 0


def _delete(options: argparse.Namespace) -> int:
    reference = parse_typed_reference(options.image)
    items = items_in(reference.repository, options.items)
    items[:0] = filter(None, [reference.digest or reference.tag])
    if not items:
        raise Misuse("name digests or tags; 'entrepot repositories delete' takes them all")
    for item in items:
        if not is_image(item) and not is_short_digest(item):
            check_tag(item)
    client = open_client(options)
    path = repository_path(client, reference.repository)
    digests, tags = find_items(client, path, items)
    confirm(
        options,
        f"Delete images ({len(digests)}) and tags ({len(tags)}) of {reference.repository}?",
    )
    return delete_items(client, path, digests, tags, options, force=options.force)


def _list_deleted(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = repository_path(client, options.repository)
    rows = client.rows(f"{path}/images/deleted", "images")
    return show_list(options, rows, _DELETED_COLUMNS, _reference_in(options))


def _restore(options: argparse.Namespace) -> int:
    reference = parse_typed_reference(options.image)
    if reference.tag is not None:
        raise Misuse(
            "images are restored by digest; 'entrepot images deleted' lists them with their tags, "
            "'entrepot tags restore' restores a tag whose image is there"
        )
    items = items_in(reference.repository, options.digests)
    items[:0] = filter(None, [reference.digest])
    if not items:
        raise Misuse("name digests; 'entrepot images deleted' lists those that can be restored")
    client = open_client(options)
    path = repository_path(client, reference.repository)
    digests = _deleted_digests(client, path, items)
    restored: list[Record] = []
    failures: list[Record] = []
    try:
        for batch in batches(digests):
            answer = client.create(f"{path}/images/restore", {"digests": batch})
            restored += answer["restored"]
            failures += answer["failures"]
    finally:
        lines = [*map(_restored_line, restored), *map(failed, failures)]
        status = write_outcome(options, {"restored": restored, "failures": failures}, lines)
    return status


def _deleted_digests(client: ApiClient, path: str, items: Sequence[str]) -> list[str]:
    """Return the digests of deleted images, some of which may be short.

    Raises:
        Missing: no deleted image has a short digest.
        Misuse: several have it.

    """
    if not any(map(is_short_digest, items)):
        return list(items)
    rows = client.rows(f"{path}/images/deleted", "images")
    deleted = [str(row["digest"]) for row in rows]
    return [_deleted_digest(deleted, item) if is_short_digest(item) else item for item in items]


def _deleted_digest(deleted: Sequence[str], short: str) -> str:
    prefix = f"sha256:{short.removeprefix('sha256:')}"
    found = [digest for digest in deleted if digest.startswith(prefix)]
    if not found:
        raise Missing(
            f"no deleted image has a digest that begins with {short}; "
            "'entrepot images deleted' lists those that can be restored"
        )
    if len(found) > 1:
        raise Misuse(f"several deleted images have digests that begin with {short}: give more")
    return found[0]


def _restored_line(image: Record) -> Line:
    tags = ", ".join(image["tags"])
    return line(image["digest"], "restored", f"with its tags: {tags}" if tags else "without tags")
