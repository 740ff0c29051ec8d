"""``entrepot lifecycle preview``: which images a run would delete, and by which rule."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import Any, Final

from registry.cli.api import open_client
from registry.cli.lifecycle_policy import no_policy, policy_path, read_rules
from registry.cli.listing import add_full_digests, show_rows
from registry.cli.options import Verbs, add_file, add_repository, add_verb
from registry.cli.output import (
    TABLE,
    column,
    echo,
    size_text,
    time_text,
    write_record,
)
from registry.cli.transport import RequestRefused

_PREVIEW_COLUMNS: Final = (
    column("RULE", "rule", is_number=True),
    column("DIGEST", "digest", is_whole=True, has_digests=True),
    column("TAGS", "tags"),
    column("SIZE", "size_bytes", size_text, is_number=True),
    column("PUSHED", "pushed_at", time_text),
    column("LAST PULLED", "last_pulled_at", time_text),
    column("EXPIRES WITH", "expires_with", is_whole=True, has_digests=True),
)


def add_parsers(verbs: Verbs) -> None:
    """Add ``preview`` to the commands of lifecycle."""
    preview = add_verb(
        verbs, "preview", show_preview, "show what would expire now; deletes nothing"
    )
    add_repository(preview)
    add_file(preview, "a policy to try instead of the repository's own", is_optional=True)
    add_full_digests(preview)


def show_preview(options: argparse.Namespace) -> int:
    """Print what a run by the policy in ``options.file``, or the repository's own, would delete."""
    document = None if options.file is None else read_rules(options.file)
    client = open_client(options)
    pages = client.pages("POST", f"{policy_path(client, options)}/preview", document)
    try:
        first = next(pages)
    except RequestRefused as error:
        raise no_policy(error, options) from None
    images = list(first["images"])
    for page in pages:
        images += page["images"]
    if options.output != TABLE:
        write_record({"images": images, "summary": first["summary"]}, options.output)
        return 0
    show_rows(options, images, _PREVIEW_COLUMNS)
    echo(_summary(first["summary"]), options.output)
    echo(HELD, options.output)
    return 0


HELD: Final = (
    "No rule expires what was pushed or restored less than an hour ago, what is pinned, the parts"
    " of an index that stays, or what is attached to an image that stays"
)
"""Why fewer images expire than the rules alone say; see `registry.services.lifecycle.selection`."""


def freed_text(size: int) -> str:
    """Return a clause with the bytes freed, which are not freed while images can be restored."""
    return f"which frees {size_text(size)} once they can no longer be restored"


def _summary(summary: Mapping[str, Any]) -> str:
    """Return the totals of a run in one line."""
    expired = f"{summary['expired']} of {summary['evaluated']} images would expire"
    by_rule = _by_rule(summary["expired_by_rule"])
    kept = _by_rule(summary["kept_by_rule"])
    return (
        f"{expired}{f' ({by_rule})' if by_rule else ''}, "
        f"{freed_text(summary['freed_bytes'])}"
        f"{f'; kept: {kept}' if kept else ''}"
    )


def _by_rule(counts: Mapping[str, int]) -> str:
    ordered = sorted(counts.items(), key=lambda each: int(each[0]))
    return ", ".join(f"rule {rule}: {count}" for rule, count in ordered)
