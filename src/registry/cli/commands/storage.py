"""``entrepot storage``: bytes that an account stores, and bytes saved by deduplication."""

from __future__ import annotations

from typing import Final

from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Command, Noun, Option

_COLUMNS: Final = (
    Cell("REPOSITORY", "repository.name"),
    "image_count",
    "logical_bytes",
    Cell("STORED", "size_bytes", "size"),
    "shared_bytes",
    Cell("FREED IF DELETED", "exclusive_bytes", "size"),
)


def _show_usage(run: Invocation) -> None:
    is_split = "by_repository" in run.values
    query = {"group_by": "repository" if is_split else None}
    usage = run.client.call("GET", run.path, query=query)["storage_usage"]
    if is_split:
        run.show_rows(usage["repositories"], _COLUMNS, document=usage)
    else:
        run.show(usage)


STORAGE: Final = Noun(
    noun="storage",
    words="storage that the account's images use",
    path="/v1/storage-usage",
    is_single=True,
    has_show=False,
    commands=(
        Command(
            verb="usage",
            words="show what is stored and what sharing saves",
            options=(Option("by_repository", "the share of each repository", "flag"),),
            run=_show_usage,
        ),
    ),
)

COMMANDS: Final = (STORAGE,)
