"""What commands print that do by hand what a paced run does in the background."""

from __future__ import annotations

from collections.abc import Iterable

from registry.cli.api import Record
from registry.cli.output import TABLE, time_text, utc_text, write_now, write_record
from registry.gc.object_check import FoundDamage


def write_damaged(blobs: Iterable[FoundDamage]) -> None:
    """Print what is wrong with each blob, and the images that need it."""
    for blob in blobs:
        write_now(f"blob {blob.digest}: {blob.problem}\n")
        for needy in blob.images:
            write_now(f"image {needy} needs blob {blob.digest}\n")


def write_status(form: str, lines: Iterable[str], record: Record) -> None:
    """Print a status: for people as `lines`, in another form as `record`."""
    if form == TABLE:
        write_now("\n".join([*lines, ""]))
    else:
        write_record(record, form)


def last_turn(ended_at: int | None, *, is_failed: bool) -> list[str]:
    """Return the line about the last turn in the background, if there was one."""
    if ended_at is None:
        return []
    failed = "; it failed, and the log has the reason" if is_failed else ""
    return [f"last turn: {time_text(utc_text(ended_at))}{failed}"]
