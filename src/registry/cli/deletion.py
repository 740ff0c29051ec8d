"""Delete many images and tags in several requests, and print the outcome of each item."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from registry.cli.api import ApiClient, Record
from registry.cli.outcomes import BATCH, Line, batches, failed, line, write_outcome
from registry.cli.progress import progress


def delete_items(
    client: ApiClient,
    repository: str,
    digests: Sequence[str],
    tags: Sequence[str],
    options: argparse.Namespace,
    *,
    force: bool = False,
) -> int:
    """Delete images, then tags, of the repository at a path; return the exit status.

    If a request fails midway, print the outcomes so far all the same.
    """
    deletion = _Deletion(client, repository, force=force)
    try:
        with progress() as show:
            deletion.delete_images(list(dict.fromkeys(digests)), show)
            deletion.delete_tags(list(dict.fromkeys(tags)), show)
    except BaseException:
        deletion.write(options)
        raise
    return deletion.write(options)


class _Deletion:
    """The items deleted so far, and those that could not be."""

    def __init__(self, client: ApiClient, repository: str, *, force: bool) -> None:
        self.failures: list[Record] = []
        self._images: list[Record] = []
        self._tags: list[Record] = []
        self._client = client
        self._path = f"{repository}/images/batch-delete"
        self._force = force

    def delete_images(self, digests: Sequence[str], show: Callable[[str], None]) -> None:
        """Delete images; retry children that were refused because of an index deleted later.

        Of more than one request's, only what is left at the end is forced: else a child would be
        taken from an index that goes a request later.
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

    def write(self, options: argparse.Namespace) -> int:
        """Print the outcome of each item; return the exit status."""
        lines = [
            *map(_image_line, self._images),
            *map(_tag_line, self._tags),
            *map(failed, self.failures),
        ]
        document = {"deleted": self._images + self._tags, "failures": self.failures}
        status = write_outcome(options, document, lines)
        held = any({"pins", "parents"} & each.get("params", {}).keys() for each in self.failures)
        if held and not self._force:
            sys.stderr.write(
                "entrepot: --force deletes what is pinned or listed by an index, too\n"
            )
        return status

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
