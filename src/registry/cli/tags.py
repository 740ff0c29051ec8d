"""``entrepot tags``: list, set, delete and restore tags; show their history."""

from __future__ import annotations

import argparse
from typing import Final, NamedTuple

from registry.cli.acting import by_column
from registry.cli.api import ApiClient, open_client
from registry.cli.confirmation import add_confirmation, confirm
from registry.cli.deletion import delete_items
from registry.cli.failure import Misuse
from registry.cli.options import Verbs, add_noun, add_repository, add_verb
from registry.cli.output import column, echo, time_text, write_record, write_records
from registry.cli.references import (
    TypedReference,
    check_tag,
    digest_of,
    is_id,
    is_image,
    missing_tag,
    parse_typed_reference,
    repository_path,
    tag_path,
)
from registry.cli.transport import RequestRefused

_COLUMNS: Final = (
    column("TAG", "name"),
    column("DIGEST", "digest", is_whole=True),
    column("MUTABLE", "mutable"),
    column("CREATED", "created_at", time_text),
    column("UPDATED", "updated_at", time_text),
)
_HISTORY_COLUMNS: Final = (
    column("WHEN", "occurred_at", time_text),
    column("ACTION", "action"),
    column("DIGEST", "digest", is_whole=True),
    column("BEFORE", "previous_digest", is_whole=True),
    by_column("principal", "source"),
)
_DELETED_COLUMNS: Final = (
    column("TAG", "tag"),
    column("DELETED", "occurred_at", time_text),
    column("DIGEST", "previous_digest", is_whole=True),
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
    add_confirmation(deletion)
    _add_tag(
        add_verb(verbs, "history", _show_history, "show the changes of a tag: what, when, by whom")
    )
    add_repository(add_verb(verbs, "deleted", _list_deleted, "list tags that can be restored"))
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
    write_records(rows, _COLUMNS, options.output)
    return 0


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
    source = _source(tag.reference, options.image)
    digest = digest_of(client, tag.repository, source)
    if is_id(digest):
        digest = client.call("GET", f"{tag.repository}/images/{digest}")["image"]["digest"]
    pointed = client.put_if(_condition(options), tag.path, {"digest": digest})["tag"]
    echo(f"{tag.words} points to {pointed['digest']}", options.output, pointed)
    return 0


def _digest(text: str) -> str:
    if not is_image(text) or is_id(text):
        raise argparse.ArgumentTypeError(f"{text!r} is no digest like sha256:...")
    return text


def _condition(options: argparse.Namespace) -> dict[str, str]:
    if options.if_current is not None:
        return {"If-Match": f'"{options.if_current}"'}
    return {"If-None-Match": "*"} if options.if_absent else {}


def _source(target: TypedReference, written: str) -> TypedReference:
    """Return the reference a tag is to point to, written as a digest, a tag, or in full."""
    if is_image(written):
        return TypedReference(target.repository, digest=written)
    if ":" not in written and "@" not in written:
        return TypedReference(target.repository, check_tag(written))
    source = parse_typed_reference(written)
    if source.repository != target.repository:
        raise Misuse("a tag points to an image of its own repository")
    return source


def _delete(options: argparse.Namespace) -> int:
    reference = parse_typed_reference(options.target)
    tags = [*filter(None, [reference.tag]), *map(check_tag, options.tags)]
    if not tags or reference.digest is not None:
        raise Misuse("name tags; 'entrepot images delete' deletes images by digest")
    client = open_client(options)
    path = repository_path(client, reference.repository)
    confirm(options, f"Delete tags ({len(tags)}) of {reference.repository}?")
    return delete_items(client, path, [], tags, options.output)


def _show_history(options: argparse.Namespace) -> int:
    client = open_client(options)
    tag = _find(client, options.target)
    rows = client.rows(f"{tag.path}/history", "history")
    try:
        write_records(rows, _HISTORY_COLUMNS, options.output)
    except RequestRefused as error:
        raise missing_tag(error, tag.reference) from None
    return 0


def _list_deleted(options: argparse.Namespace) -> int:
    client = open_client(options)
    path = repository_path(client, options.repository)
    rows = client.rows(f"{path}/deleted-tags", "tags")
    write_records(rows, _DELETED_COLUMNS, options.output)
    return 0


def _restore(options: argparse.Namespace) -> int:
    client = open_client(options)
    tag = _find(client, options.target)
    restored = client.create(f"{tag.path}/restore")["tag"]
    echo(f"{tag.words} points to {restored['digest']} again", options.output, restored)
    return 0
