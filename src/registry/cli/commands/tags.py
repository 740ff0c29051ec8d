"""``entrepot tags``: the tags of a repository."""

from __future__ import annotations

from typing import Final

from cloudcore.command_failures import Missing, Misuse, RequestRefused
from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Noun, Option, Record, argument, method_command
from cloudcore.commands.records import by_column, printable
from registry.cli.client.api import ApiClient, client_of
from registry.cli.client.references import (
    TypedReference,
    check_item,
    check_tag,
    digest_of,
    find_items,
    full_digest,
    is_digest_or_id,
    is_id,
    is_short_digest,
    missing_tag_text,
    parse_item_arguments,
    parse_items,
    parse_typed_reference,
    repository_path,
    tag_path,
)
from registry.cli.commands.batches import delete_items
from registry.cli.commands.repositories import REPOSITORIES

_DELETED: Final = (
    "tag",
    Cell("DELETED", "occurred_at", "time"),
    Cell("DIGEST", "previous_digest", "digest"),
    by_column("principal", "source"),
)


def _named(written: str) -> TypedReference:
    """Parse a tag written as ``REPOSITORY:TAG``; raise `Misuse` for other text."""
    reference = parse_typed_reference(written)
    if reference.tag is None or reference.digest is not None:
        raise Misuse(f"which tag of {reference.repository}? write REPOSITORY:TAG")
    return reference


def _locate(run: Invocation, written: str) -> str:
    reference = _named(written)
    assert reference.tag is not None
    return tag_path(repository_path(client_of(run), reference.repository), reference.tag)


def _set(run: Invocation) -> None:
    client, reference = client_of(run), _named(run.written)
    path = run.path.rpartition("/tags/")[0]
    try:
        digest = _target_digest(client, path, reference, run.values["image"])
        pointed = client.put_if(_condition(run, path), run.path, {"digest": digest})["tag"]
    except RequestRefused as error:
        if error.status != 404:
            raise
        raise _missing_image(reference, run.values["image"]) from None
    run.say(f"{run.written} points to {pointed['digest']}", pointed)


def _condition(run: Invocation, path: str) -> dict[str, str]:
    current = run.values.get("if_current")
    if current is None:
        return {"If-None-Match": "*"} if "if_absent" in run.values else {}
    is_digest = is_digest_or_id(current) and not is_id(current)
    if not is_digest and not is_short_digest(current):
        raise Misuse(f"{printable(current)!r} is no digest like sha256:...")
    return {"If-Match": f'"{full_digest(client_of(run), path, current)}"'}


def _target_digest(client: ApiClient, path: str, tag: TypedReference, written: str) -> str:
    """Return the digest of the image that is written as a digest, id, tag or full reference."""
    (item,) = parse_items(tag.repository, [written])
    check_item(item)
    digests, tags = find_items(client, path, [item])
    if digests:
        return digests[0]
    try:
        return digest_of(client, path, TypedReference(tag.repository, tags[0]))
    except Missing:
        if is_short_digest(item):
            raise _missing_image(tag, item) from None
        raise


def _missing_image(tag: TypedReference, written: str) -> Missing:
    """Return the error for an image that is not in the repository, or was deleted."""
    return Missing(
        f"{tag.repository} has no image {printable(written)}; if it was deleted, 'entrepot images "
        f"deleted {tag.repository}' lists it, and 'entrepot images restore {tag.repository} DIGEST'"
        " brings it back"
    )


def _delete(run: Invocation) -> bool:
    reference, tags = parse_item_arguments(run.values["tag"], run.values["tags"])
    if not tags or reference.digest is not None:
        raise Misuse("name tags; 'entrepot images delete' deletes images by digest")
    for tag in tags:
        check_tag(tag)
    path = repository_path(client_of(run), reference.repository)
    run.confirm(f"Delete tags ({len(tags)}) of {reference.repository}?")
    return delete_items(run, path, [], tags)


def _deleted_name(run: Invocation, row: Record) -> str:
    return f"{run.above.written}:{row['tag']}"


def _list_deleted(run: Invocation) -> None:
    rows = run.client.rows(f"{run.above.path}/deleted-tags", "tags")
    run.show_rows(rows, _DELETED, _deleted_name)


TAGS: Final = Noun(
    noun="tags",
    words="tags of a repository",
    parent=REPOSITORIES,
    metavar="REPOSITORY:TAG",
    known_by="a tag, after the name of its repository",
    locate=_locate,
    columns=(Cell("TAG", "name"), "digest", "mutable", "created_at", "updated_at"),
    quiet=lambda run, row: f"{run.above.written}:{row['name']}",
    filters=(Option("prefix", "only tags that begin with TEXT"),),
    missing=dict.fromkeys(
        ("show", "history"), lambda run, _: missing_tag_text(_named(run.written))
    ),
    commands=(
        Command(
            verb="set",
            words="point a tag to an image, without pull or push",
            options=(
                argument("image", "of the repository", metavar="DIGEST|TAG"),
                Option("if_current", "only if it points there now", metavar="DIGEST", group="when"),
                Option("if_absent", "only if there is no such tag", "flag", group="when"),
            ),
            run=_set,
        ),
        Command(
            verb="delete",
            words="delete tags; their images stay",
            path="/v1/repositories",
            options=(
                argument("tag", "", metavar="REPOSITORY[:TAG]"),
                argument(
                    "tags", "of the same repository", "texts", metavar="TAG", is_optional=True
                ),
            ),
            has_digests=True,
            asks=True,
            run=_delete,
        ),
        Command(
            verb="history",
            words="show the changes of a tag: what, when, by whom",
            path="history",
            answer="history",
            columns=(
                Cell("WHEN", "occurred_at", "time"),
                "action",
                "digest",
                Cell("BEFORE", "previous_digest", "digest"),
                by_column("principal", "source"),
            ),
            row_name="digest",
        ),
        Command(
            verb="deleted",
            words="list tags that can be restored",
            is_on_list=True,
            columns=_DELETED,
            row_name=_deleted_name,
            run=_list_deleted,
        ),
        method_command("restore", "restore a deleted tag", "tag", "{tag} points to {digest} again"),
    ),
)

COMMANDS: Final = (TAGS,)
