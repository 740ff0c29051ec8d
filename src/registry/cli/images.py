"""``entrepot images``; the modules `manifest`, `referrers` and `pins` add more commands to it."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from itertools import islice
from typing import Final

from registry.cli import manifest, pins, referrers
from registry.cli.acting import by_column
from registry.cli.api import PAGE_ROWS, ApiClient, Record, open_client
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.deletion import delete_items
from registry.cli.failure import FAILED, Misuse
from registry.cli.options import Verbs, add_image, add_noun, add_repository, add_verb
from registry.cli.outcomes import Line, batches, failed, line, write_outcome
from registry.cli.output import column, size_text, time_text, write_record, write_records
from registry.cli.references import (
    check_tag,
    image_path,
    is_id,
    is_image,
    parse_typed_reference,
    repository_path,
)

_COLUMNS: Final = (
    column("DIGEST", "digest", is_whole=True),
    column("TAGS", "tags"),
    column("SIZE", "size_bytes", size_text, is_number=True),
    column("PUSHED", "pushed_at", time_text),
    column("LAST PULLED", "last_pulled_at", time_text),
)
_DELETED_COLUMNS: Final = (
    column("DIGEST", "digest", is_whole=True),
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
    which.add_argument("--tagged", action="store_true", help="only images with a tag")
    which.add_argument("--untagged", action="store_true", help="only images without")
    which.add_argument("--tag-prefix", metavar="TEXT", help="only with a tag that begins with TEXT")
    listing.add_argument("--limit", type=_count, metavar="N", help="at most N (all)")
    add_image(add_verb(verbs, "show", _show, "show an image"))
    add_image(
        add_verb(
            verbs, "storage", _show_storage, "show the bytes that deleting an image would free"
        )
    )
    _add_deletion(verbs)
    add_repository(add_verb(verbs, "deleted", _list_deleted, "list images that can be restored"))
    restore = add_verb(verbs, "restore", _restore, "restore deleted images with their tags")
    restore.add_argument("image", metavar="REPOSITORY[@DIGEST]")
    restore.add_argument("digests", metavar="DIGEST", nargs="*", help="of the same repository")
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
    deletion.add_argument("--force", action="store_true", help="even if they are pinned")
    add_confirmation(deletion)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not int(text):
        raise argparse.ArgumentTypeError("a number, 1 or more")
    return int(text)


def _list(options: argparse.Namespace) -> int:
    client = open_client(options)
    query = {
        "tag_status": "tagged" if options.tagged else "untagged" if options.untagged else None,
        "tag_prefix": options.tag_prefix,
        "limit": min(options.limit or PAGE_ROWS, PAGE_ROWS),
    }
    path = repository_path(client, options.repository)
    rows: Iterator[Record] = client.rows(f"{path}/images", "images", query)
    write_records(islice(rows, options.limit), _COLUMNS, options.output)
    return 0


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
    digests, tags = [], []
    reference = parse_typed_reference(options.image)
    if reference.digest or reference.tag:
        options.items.insert(0, reference.digest or reference.tag)
    for item in options.items:
        if is_image(item):
            digests.append(item)
        else:
            tags.append(check_tag(item))
    if not options.items:
        raise Misuse("name digests or tags; 'entrepot repositories delete' takes them all")
    client = open_client(options)
    path = repository_path(client, reference.repository)
    digests = [_digest(client, path, each) for each in digests]
    confirm(
        options,
        f"Delete images ({len(digests)}) and tags ({len(tags)}) of {reference.repository}?",
    )
    return delete_items(client, path, digests, tags, options.output, force=options.force)


def _digest(client: ApiClient, repository: str, image: str) -> str:
    """Return the digest of an image that is named by its digest or id."""
    if not is_id(image):
        return image
    digest: str = client.call("GET", f"{repository}/images/{image}")["image"]["digest"]
    return digest


def _list_deleted(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = repository_path(client, options.repository)
    rows = client.rows(f"{path}/images/deleted", "images")
    write_records(rows, _DELETED_COLUMNS, options.output)
    return 0


def _restore(options: argparse.Namespace) -> int:
    reference = parse_typed_reference(options.image)
    if reference.tag is not None:
        raise Misuse(
            "images are restored by digest; 'entrepot images deleted' lists them with their tags, "
            "'entrepot tags restore' restores a tag whose image is there"
        )
    digests = [*filter(None, [reference.digest]), *options.digests]
    if not digests:
        raise Misuse("name digests; 'entrepot images deleted' lists those that can be restored")
    client = open_client(options)
    path = repository_path(client, reference.repository)
    restored: list[Record] = []
    failures: list[Record] = []
    try:
        for batch in batches(digests):
            answer = client.create(f"{path}/images/restore", {"digests": batch})
            restored += answer["restored"]
            failures += answer["failures"]
    finally:
        lines = [*map(_restored_line, restored), *map(failed, failures)]
        write_outcome({"restored": restored, "failures": failures}, lines, options.output)
    return FAILED if failures else 0


def _restored_line(image: Record) -> Line:
    tags = ", ".join(image["tags"])
    return line(image["digest"], "restored", f"with its tags: {tags}" if tags else "without tags")
