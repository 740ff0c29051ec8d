"""``entrepot tags``: list, set, delete and restore tags; show their history."""

from __future__ import annotations

import argparse
from typing import Final, NamedTuple

from registry.cli.acting import by_column
from registry.cli.api import ApiClient, open_client
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.deletion import delete_items
from registry.cli.failure import Missing, Misuse
from registry.cli.items import find_items, items_in
from registry.cli.listing import add_full_digests, add_quiet, show_list, show_rows
from registry.cli.options import Verbs, add_noun, add_repository, add_verb
from registry.cli.output import column, echo, printable, time_text, write_record
from registry.cli.references import (
    TypedReference,
    check_tag,
    digest_of,
    full_digest,
    is_id,
    is_image,
    missing_tag,
    parse_typed_reference,
    repository_path,
    tag_path,
)
from registry.cli.short_digests import is_short_digest
from registry.cli.transport import RequestRefused

_COLUMNS: Final = (
    column("TAG", "name"),
    column("DIGEST", "digest", is_whole=True, has_digests=True),
    column("MUTABLE", "mutable"),
    column("CREATED", "created_at", time_text),
    column("UPDATED", "updated_at", time_text),
)
_HISTORY_COLUMNS: Final = (
    column("WHEN", "occurred_at", time_text),
    column("ACTION", "action"),
    column("DIGEST", "digest", is_whole=True, has_digests=True),
    column("BEFORE", "previous_digest", is_whole=True, has_digests=True),
    by_column("principal", "source"),
)
_DELETED_COLUMNS: Final = (
    column("TAG", "tag"),
    column("DELETED", "occurred_at", time_text),
    column("DIGEST", "previous_digest", is_whole=True, has_digests=True),
    by_column("principal", "source"),
)


class _Tag(NamedTuple):
    """The tag that a command names."""

    repository: str
    """Path of the repository."""
    reference: TypedReference

    @property
    def path(self) -> str:
        assert self.reference.tag is not None
        return tag_path(self.repository, self.reference.tag)

    @property
    def words(self) -> str:
        return f"{self.reference.repository}:{self.reference.tag}"


def add_parsers(commands: Verbs) -> None:
    """Add ``tags`` and its commands."""
    verbs = add_noun(commands, "tags", "tags of a repository")
    listing = add_verb(verbs, "list", _list, "list tags in byte order")
    add_repository(listing)
    listing.add_argument("--prefix", metavar="TEXT", help="only tags that begin with TEXT")
    add_quiet(listing, "references")
    add_full_digests(listing)
    _add_tag(add_verb(verbs, "show", _show, "show where a tag points"))
    setting = add_verb(verbs, "set", _set, "point a tag to an image, without pull or push")
    setting.add_argument("target", metavar="REPOSITORY:TAG")
    setting.add_argument("image", metavar="DIGEST|TAG", help="of the repository")
    when = setting.add_mutually_exclusive_group()
    when.add_argument(
        "--if-current", type=_digest, metavar="DIGEST", help="only if it points there now"
    )
    when.add_argument("--if-absent", action="store_true", help="only if there is no such tag")
    deletion = add_verb(verbs, "delete", _delete, "delete tags; their images stay")
    deletion.add_argument("target", metavar="REPOSITORY[:TAG]")
    deletion.add_argument("tags", metavar="TAG", nargs="*", help="of the same repository")
    add_full_digests(deletion)
    add_confirmation(deletion)
    words = "show the changes of a tag: what, when, by whom"
    history = add_verb(verbs, "history", _show_history, words)
    _add_tag(history)
    add_full_digests(history)
    deleted = add_verb(verbs, "deleted", _list_deleted, "list tags that can be restored")
    add_repository(deleted)
    add_quiet(deleted, "references")
    add_full_digests(deleted)
    _add_tag(add_verb(verbs, "restore", _restore, "restore a deleted tag"))


def _add_tag(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("target", metavar="REPOSITORY:TAG")


def _find(client: ApiClient, target: str) -> _Tag:
    """Return the tag written as ``REPOSITORY:TAG``, whether or not it exists."""
    reference = parse_typed_reference(target)
    if reference.tag is None or reference.digest is not None:
        raise Misuse(f"which tag of {reference.repository}? write REPOSITORY:TAG")
    return _Tag(repository_path(client, reference.repository), reference)


def _list(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = repository_path(client, options.repository)
    rows = client.rows(f"{path}/tags", "tags", {"prefix": options.prefix})
    return show_list(options, rows, _COLUMNS, lambda row: f"{options.repository}:{row['name']}")


def _show(options: argparse.Namespace) -> int:
    client = open_client(options)
    tag = _find(client, options.target)
    try:
        found = client.call("GET", tag.path)["tag"]
    except RequestRefused as error:
        raise missing_tag(error, tag.reference) from None
    write_record(found, options.output)
    return 0


def _set(options: argparse.Namespace) -> int:
    client = open_client(options)
    tag = _find(client, options.target)
    try:
        digest = _target_digest(client, tag, options.image)
        condition = _condition(client, tag, options)
        pointed = client.put_if(condition, tag.path, {"digest": digest})["tag"]
    except RequestRefused as error:
        if error.status != 404:
            raise
        raise _missing_image(tag, options.image) from None
    echo(f"{tag.words} points to {pointed['digest']}", options.output, pointed)
    return 0


def _digest(text: str) -> str:
    is_digest = is_image(text) and not is_id(text)
    if not is_digest and not is_short_digest(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no digest like sha256:...")
    return text


def _condition(client: ApiClient, tag: _Tag, options: argparse.Namespace) -> dict[str, str]:
    if options.if_current is not None:
        return {"If-Match": f'"{full_digest(client, tag.repository, options.if_current)}"'}
    return {"If-None-Match": "*"} if options.if_absent else {}


def _target_digest(client: ApiClient, tag: _Tag, written: str) -> str:
    """Return the digest a tag is to point to: of a digest, an id, a tag, or a full reference."""
    repository = tag.reference.repository
    (item,) = items_in(repository, [written])
    if not is_image(item) and not is_short_digest(item):
        check_tag(item)
    digests, tags = find_items(client, tag.repository, [item])
    if digests:
        return digests[0]
    try:
        return digest_of(client, tag.repository, TypedReference(repository, tags[0]))
    except Missing:
        if is_short_digest(item):
            raise _missing_image(tag, item) from None
        raise


def _missing_image(tag: _Tag, written: str) -> Missing:
    """Return the failure for an image that the repository does not have, or has no more."""
    repository = tag.reference.repository
    return Missing(
        f"{repository} has no image {printable(written)}; if it was deleted, 'entrepot images "
        f"deleted {repository}' lists it, and 'entrepot images restore {repository} DIGEST' brings "
        "it back"
    )


def _delete(options: argparse.Namespace) -> int:
    reference = parse_typed_reference(options.target)
    others = items_in(reference.repository, options.tags)
    tags = [*filter(None, [reference.tag]), *map(check_tag, others)]
    if not tags or reference.digest is not None:
        raise Misuse("name tags; 'entrepot images delete' deletes images by digest")
    client = open_client(options)
    path = repository_path(client, reference.repository)
    confirm(options, f"Delete tags ({len(tags)}) of {reference.repository}?")
    return delete_items(client, path, [], tags, options)


def _show_history(options: argparse.Namespace) -> int:
    client = open_client(options)
    tag = _find(client, options.target)
    rows = client.rows(f"{tag.path}/history", "history")
    try:
        show_rows(options, rows, _HISTORY_COLUMNS)
    except RequestRefused as error:
        raise missing_tag(error, tag.reference) from None
    return 0


def _list_deleted(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = repository_path(client, options.repository)
    rows = client.rows(f"{path}/deleted-tags", "tags")
    return show_list(
        options, rows, _DELETED_COLUMNS, lambda row: f"{options.repository}:{row['tag']}"
    )


def _restore(options: argparse.Namespace) -> int:
    client = open_client(options)
    tag = _find(client, options.target)
    restored = client.create(f"{tag.path}/restore")["tag"]
    echo(f"{tag.words} points to {restored['digest']} again", options.output, restored)
    return 0
