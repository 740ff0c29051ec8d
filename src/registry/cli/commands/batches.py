"""Send requests about many items in batches, and print the outcome of each item."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from cloudcore.commands.client import ApiCalls
from cloudcore.commands.invocation import Invocation
from cloudcore.commands.nouns import Cell, Record
from cloudcore.commands.progress import progress

Line = dict[str, str]

BATCH: Final = 100
"""Maximum number of items in one request."""

_COLUMNS: Final = (Cell("ITEM", "item", "digests"), "outcome", Cell("DETAIL", "detail", "digests"))


def batches(items: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the items in batches that fit one request."""
    for start in range(0, len(items), BATCH):
        yield items[start : start + BATCH]


def line(item: str, outcome: str, detail: str) -> Line:
    """Return the table row of an item."""
    return {"item": item, "outcome": outcome, "detail": detail}


def failed(failure: Record) -> Line:
    """Return the table row of an item that failed."""
    item = failure.get("tag") or failure["digest"]
    params = failure.get("params", {})
    holders = {"pins": params.get("pins"), "in": params.get("parents")}
    which = "; ".join(f"{name}: {', '.join(held)}" for name, held in holders.items() if held)
    why = f"{failure['code']}: {failure['message']}"
    return line(item, "refused", f"{why} ({which})" if which else why)


def write_outcome(run: Invocation, document: Record, lines: Sequence[Line]) -> bool:
    """Print the outcome of each item; return False if an item was refused.

    The number of refused items is printed on standard error: a long table may scroll away.
    """
    run.show_rows(lines, _COLUMNS, document=document)
    refused = len(document["failures"])
    if refused:
        run.warn(f"{refused} of {len(lines)} items were refused")
    return not refused


def delete_items(
    run: Invocation,
    repository: str,
    digests: Sequence[str],
    tags: Sequence[str],
    *,
    force: bool = False,
) -> bool:
    """Delete images, then tags, of a repository; return False if an item was refused.

    `repository` is an API path. If a request fails midway, print the outcomes so far, and raise.
    """
    deletion = _Deletion(run.client, repository, force=force)
    try:
        with progress() as show:
            deletion.delete_images(list(dict.fromkeys(digests)), show)
            deletion.delete_tags(list(dict.fromkeys(tags)), show)
    except BaseException:
        deletion.write(run)
        raise
    return deletion.write(run)


class _Deletion:
    """A deletion under way: the items deleted so far, and those refused."""

    def __init__(self, client: ApiCalls, repository: str, *, force: bool) -> None:
        self.failures: list[Record] = []
        self._images: list[Record] = []
        self._tags: list[Record] = []
        self._client = client
        self._path = f"{repository}/images/batch-delete"
        self._force = force

    def delete_images(self, digests: Sequence[str], show: Callable[[str], None]) -> None:
        """Delete images in batches; retry images that were refused because an index lists them.

        With several batches, `force` is sent only at the end, for images that are still refused:
        earlier, it would take a child from an index that a later batch deletes.
        """
        waiting = digests
        force = self._force and len(digests) <= BATCH
        while waiting:
            before = len(self._images)
            refused = []
            for batch in batches(waiting):
                answer = self._send({"digests": batch}, force=force)
                self._images += answer["deleted"]
                refused += answer["failures"]
                show(f"deleted {len(self._images)} of {len(digests)} images")
            if len(waiting) <= BATCH or len(self._images) == before:
                if force or not self._force:
                    self.failures += refused
                    return
                force = True
            # A refused child can be deleted after its index, which may be in a later request.
            waiting = [each["digest"] for each in refused if each["code"] == "CONFLICT"]
            self.failures += [each for each in refused if each["code"] != "CONFLICT"]

    def delete_tags(self, tags: Sequence[str], show: Callable[[str], None]) -> None:
        """Delete tags, except those that were deleted with their images."""
        gone = {tag for image in self._images for tag in image["tags"]}
        waiting = [tag for tag in tags if tag not in gone]
        for batch in batches(waiting):
            answer = self._send({"tags": batch}, force=self._force)
            self._tags += answer["deleted"]
            self.failures += answer["failures"]
            show(f"deleted {len(self._tags)} of {len(waiting)} tags")

    def write(self, run: Invocation) -> bool:
        """Print the outcome of each item; return False if one was refused."""
        lines = [
            *map(_image_line, self._images),
            *map(_tag_line, self._tags),
            *map(failed, self.failures),
        ]
        document = {"deleted": self._images + self._tags, "failures": self.failures}
        is_done = write_outcome(run, document, lines)
        held = any({"pins", "parents"} & each.get("params", {}).keys() for each in self.failures)
        if held and not self._force:
            run.warn("--force deletes what is pinned or listed by an index, too")
        return is_done

    def _send(self, items: Record, *, force: bool) -> Record:
        return self._client.create(self._path, items, {"force": True} if force else {})


def _image_line(image: Record) -> Line:
    tags = ", ".join(image["tags"])
    detail = f"with its tags: {tags}" if tags else "it had no tag"
    indexes = ", ".join(map(_index_name, image.get("incomplete_indexes", ())))
    return line(
        image["digest"], "deleted", f"{detail}; lacking now in {indexes}" if indexes else detail
    )


def _index_name(index: Record) -> str:
    return f"{index['digest']} ({', '.join(index['tags'])})" if index["tags"] else index["digest"]


def _tag_line(tag: Record) -> Line:
    return line(tag["tags"][0], "deleted", f"its image stays: {tag['digest']}")
