"""``entrepot images referrers``: signatures, SBOMs and attestations as a tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

from cloudcore.command_line import Act, ApiCalls, Invocation, Option, Record
from registry.cli.output import printable, size_text, time_text

_DEEPEST: Final = 16
"""The most levels shown; each image of the tree costs a request."""


def _show_tree(run: Invocation) -> bool:
    images, _, reference = run.path.rpartition("/")
    found = _referrers(run.client, images, reference, run.values.get("artifact_type"))
    if run.is_for_program:
        run.show_rows(found, ())
    else:
        for line in (run.written, *_lines(found)):
            run.say(run.shortened(line))
    return True


def _referrers(
    client: ApiCalls, images: str, reference: str, artifact_type: str | None, depth: int = 1
) -> list[dict[str, Any]]:
    """Return the referrers of an image, each with its own under ``referrers``."""
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


REFERRERS: Final = Act(
    verb="referrers",
    words="show what refers to an image, as a tree",
    options=(
        Option("artifact_type", "only those about the image itself of this type", metavar="TYPE"),
    ),
    has_digests=True,
    run=_show_tree,
)
