"""``entrepot images``: images of a repository, their referrers and pins, and deleted images."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import Any, Final
from urllib.parse import quote

import msgspec

from cloudcore.command_failures import Missing, Misuse
from cloudcore.commands.client import ApiCalls
from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Noun, Option, Record, argument
from cloudcore.commands.records import by_column, printable, size_text, time_text
from registry.cli.client.api import PAGE_ROWS, client_of
from registry.cli.client.references import (
    check_item,
    find_items,
    image_path,
    is_short_digest,
    parse_item_arguments,
    repository_path,
)
from registry.cli.commands.batches import Line, batches, delete_items, failed, line, write_outcome
from registry.cli.commands.repositories import REPOSITORIES

_DEEPEST: Final = 16
"""Maximum depth of the tree; each image in it costs a request."""


def _show_tree(run: Invocation) -> None:
    images, _, reference = run.path.rpartition("/")
    found = _referrers(run.client, images, reference, run.values.get("artifact_type"))
    if run.is_for_program:
        run.show_rows(found, ())
    else:
        run.say_lines(map(run.shortened, (run.written, *_lines(found))))


def _referrers(
    client: ApiCalls, images: str, reference: str, artifact_type: str | None, depth: int = 1
) -> list[dict[str, Any]]:
    """Return the referrers of an image, each with its own referrers under ``referrers``."""
    query = {"artifact_type": artifact_type}
    found = list(client.rows(f"{images}/{reference}/referrers", "images", query))
    for each in found:
        each["referrers"] = (
            _referrers(client, images, each["digest"], None, depth + 1) if depth < _DEEPEST else []
        )
    return found


def _lines(found: Sequence[Record], indent: str = "") -> Iterator[str]:
    for place, each in enumerate(found, start=1):
        is_last = place == len(found)
        what = printable(each.get("artifact_type") or each["media_type"])
        when, size = time_text(each["pushed_at"]), size_text(each["size_bytes"])
        yield f"{indent}{'└─' if is_last else '├─'} {what}  {each['digest']}  {size}  {when}"
        yield from _lines(each["referrers"], f"{indent}{'   ' if is_last else '│  '}")


REFERRERS: Final = Command(
    verb="referrers",
    words="show what refers to an image, as a tree",
    options=(
        Option("artifact_type", "only those about the image itself of this type", metavar="TYPE"),
    ),
    has_digests=True,
    run=_show_tree,
)


_COLUMNS: Final = ("digest", "tags", "size_bytes", "pushed_at", "last_pulled_at")
_PARTS: Final = ("subject", "config", "manifests", "layers", "blobs")
"""The fields of a manifest that hold descriptors."""
_PART_COLUMNS: Final = (
    "part",
    "platform",
    Cell("SIZE", "size", "size"),
    "digest",
    Cell("MEDIA TYPE", "mediaType"),
)
_PIN: Final = argument("name", "such as where it is deployed: production", metavar="PIN")


def _reference(run: Invocation, image: Record) -> str:
    """Return the reference of an image, as commands accept it."""
    return f"{run.above.written}@{image['digest']}"


def _list(run: Invocation) -> None:
    values = run.values
    limit = values.get("limit")
    query = {"limit": min(limit or PAGE_ROWS, PAGE_ROWS)}
    if "tag_prefix" in values:
        query["tag_prefix"] = values["tag_prefix"]
    else:
        is_any, is_untagged = "all" in values, "untagged" in values
        query["tag_status"] = "any" if is_any else "untagged" if is_untagged else "tagged"
    rows = run.client.rows(run.path, "images", query)
    first = list(islice(rows, 1))
    if not first and query.get("tag_status") == "tagged":
        run.warn("no image has a tag; --all lists those without")
    run.show_rows(islice(chain(first, rows), limit), _COLUMNS, _reference)


def _show_manifest(run: Invocation) -> None:
    text = client_of(run).fetch(f"{run.path}/manifest")
    if run.form == "json":
        # The exact bytes: they hash to the image's digest.
        sys.stdout.buffer.write(text)
        return
    document = msgspec.json.decode(text, type=dict[str, Any])
    run.show_rows(_descriptors(document), _PART_COLUMNS, document=document)


def _descriptors(document: dict[str, Any]) -> Iterator[Record]:
    """Yield the descriptors in a manifest; the registry checked their form at the push."""
    for name in _PARTS:
        found = document.get(name) or []
        for each in found if isinstance(found, list) else [found]:
            platform = each.get("platform") or {}
            shown = [platform.get(field) for field in ("os", "architecture", "variant")]
            part = name.removesuffix("s")
            yield {**each, "part": part, "platform": "/".join(map(str, filter(None, shown)))}


def _pin(run: Invocation) -> None:
    document = {"expires_at": run.values.get("expires_at")}
    pin = run.client.call("PUT", _pin_path(run), document)["pin"]
    until = run.text("{expires_at}", pin) if pin["expires_at"] else "it is unpinned"
    run.say(f"Pinned {run.written} as {pin['name']} until {until}", pin)


def _unpin(run: Invocation) -> None:
    run.client.call("DELETE", _pin_path(run))
    run.say(f"Unpinned {run.written}: {run.values['name']}")


def _pin_path(run: Invocation) -> str:
    name = run.values["name"]
    if "/" in name:  # the path would have no route, and the 404 would not say why
        raise Misuse(f"{name!r} has a slash; write {name.replace('/', '.')!r}")
    return f"{run.path}/pins/{quote(name, safe='')}"


def _delete(run: Invocation) -> bool:
    reference, items = parse_item_arguments(run.values["image"], run.values["items"])
    if not items:
        raise Misuse("name digests or tags; 'entrepot repositories delete' takes them all")
    for item in items:
        check_item(item)
    path = repository_path(client_of(run), reference.repository)
    digests, tags = find_items(client_of(run), path, items)
    run.confirm(f"Delete images ({len(digests)}) and tags ({len(tags)}) of {reference.repository}?")
    return delete_items(run, path, digests, tags, force="force" in run.values)


def _restore(run: Invocation) -> bool:
    reference, items = parse_item_arguments(run.values["image"], run.values["digests"])
    if reference.tag is not None:
        raise Misuse(
            "images are restored by digest; 'entrepot images deleted' lists them with their tags, "
            "'entrepot tags restore' restores a tag whose image is there"
        )
    if not items:
        raise Misuse("name digests; 'entrepot images deleted' lists those that can be restored")
    path = repository_path(client_of(run), reference.repository)
    digests = _deleted_digests(run, path, items)
    restored: list[Record] = []
    failures: list[Record] = []
    try:
        for batch in batches(digests):
            answer = run.client.create(f"{path}/images/restore", {"digests": batch})
            restored += answer["restored"]
            failures += answer["failures"]
    finally:
        lines = [*map(_restored_line, restored), *map(failed, failures)]
        is_done = write_outcome(run, {"restored": restored, "failures": failures}, lines)
    return is_done


def _deleted_digests(run: Invocation, path: str, items: Sequence[str]) -> list[str]:
    """Return `items`, with each short digest completed to the digest of a deleted image.

    Raise `Missing` if no deleted image matches a short digest; `Misuse` if several do.
    """
    if not any(map(is_short_digest, items)):
        return list(items)
    rows = run.client.rows(f"{path}/images/deleted", "images")
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


_FIRST: Final = argument("image", "")
IMAGES: Final = Noun(
    noun="images",
    words="images of a repository",
    parent=REPOSITORIES,
    known_by="REPOSITORY:TAG or REPOSITORY@DIGEST, of which 6 digits may do",
    locate=lambda run, written: image_path(client_of(run), written),
    columns=_COLUMNS,
    commands=(
        Command(
            verb="list",
            words="list images, the newest first",
            is_on_list=True,
            options=(
                Option("all", "those without a tag too", "flag", short="a", group="which"),
                Option("tagged", "only images with a tag (so it is)", "flag", group="which"),
                Option("untagged", "only images without", "flag", group="which"),
                Option("tag_prefix", "only with a tag that begins with TEXT", group="which"),
                Option("limit", "at most N (all)", "count"),
            ),
            columns=_COLUMNS,
            row_name=_reference,
            run=_list,
        ),
        Command(
            verb="storage",
            words="show the bytes that deleting an image would free",
            path="storage",
            method="GET",
            answer="storage",
        ),
        Command(
            verb="delete",
            words="delete images by digest, with their tags; or tags, whose images stay",
            path="/v1/repositories",
            options=(
                _FIRST._replace(metavar="REPOSITORY[:TAG|@DIGEST]"),
                argument(
                    "items",
                    "of the same repository",
                    "texts",
                    metavar="DIGEST|TAG",
                    is_optional=True,
                ),
                Option("force", "even if they are pinned, or an index lists them", "flag"),
            ),
            has_digests=True,
            asks=True,
            run=_delete,
        ),
        Command(
            verb="deleted",
            words="list images that can be restored",
            path="deleted",
            is_on_list=True,
            answer="images",
            columns=(
                *_COLUMNS[:3],
                "deleted_at",
                by_column("deleted_by", "deleted_by_source"),
                Cell("RESTORABLE UNTIL", "restorable_until", "time"),
            ),
            row_name=_reference,
        ),
        Command(
            verb="restore",
            words="restore deleted images with their tags",
            path="/v1/repositories",
            options=(
                _FIRST._replace(metavar="REPOSITORY[@DIGEST]"),
                argument(
                    "digests", "of the same repository", "texts", metavar="DIGEST", is_optional=True
                ),
            ),
            has_digests=True,
            run=_restore,
        ),
        Command(
            verb="manifest",
            words="show what an image is made of; with --output json its manifest, byte by byte",
            columns=_PART_COLUMNS,
            run=_show_manifest,
        ),
        REFERRERS,
        Command(
            verb="pin",
            words="pin an image, or renew a pin: lifecycle leaves it alone",
            options=(
                _PIN,
                Option("expires_at", "such as 12h or 30d", "until", "for"),
                Option(
                    "expires_at",
                    "such as 2030-01-31T12:00:00Z (until it is unpinned)",
                    metavar="TIME",
                ),
            ),
            run=_pin,
        ),
        Command(verb="unpin", words="remove a pin from an image", options=(_PIN,), run=_unpin),
        Command(
            verb="pins",
            words="list the pins of an image",
            path="pins",
            answer="pins",
            columns=("name", "expires_at", Cell("BY", "created_by"), "created_at"),
            row_name="name",
        ),
    ),
)

COMMANDS: Final = (IMAGES,)
