"""The requests that are sent to a small and a large registry, with answers of equal size.

Pages have `PAGE` rows, so that both can fill them. A case yields steps, each a row of the report;
what a step has changed, a later one changes back.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from benchmarks.scale_data import (
    HANDLE,
    INDEX_TYPE,
    LATEST,
    MANIFEST_TYPE,
    REPOSITORY,
    SPAN,
    Contents,
    Image,
    digest_of,
)
from benchmarks.scale_site import Call, Site

PAGE: Final = 5
BATCH: Final = 10
_WALK: Final = 200
"""The largest page of ``/v1``."""

RULES: Final = [
    {"priority": 1, "selector": "tagged", "tag_prefixes": ["rare-"], "action": "keep"},
    {"priority": 2, "selector": "untagged", "older_than_days": 14},
    {"priority": 3, "selector": "tagged", "tag_patterns": ["v-*5"], "keep_last": 1000},
    {"priority": 4, "selector": "tagged", "tag_prefixes": ["mid-"], "not_pulled_for_days": 30},
    {"priority": 5, "selector": "any", "older_than_days": SPAN // (24 * 3600 * 10**6) - 30},
]
"""Lifecycle rules that select most images older than a month, and are evaluated for all."""


class View:
    """The resources of a site that the requests use."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.contents: Contents = site.contents
        self.path = f"/v1/repositories/{self.contents.repository_id}"
        self.registry = f"/v2/{HANDLE}/{REPOSITORY}"
        self.serial = itertools.count()
        self._markers: dict[str, str] = {}

    @cached_property
    def plain(self) -> list[int]:
        """Return the numbers of the images that can be deleted by themselves."""
        return [n for n in range(self.contents.images) if self.contents.is_plain(n)]

    def spread(self, count: int) -> list[Image]:
        """Return `count` plain images, spread from the oldest to the newest."""
        numbers = (self.plain[len(self.plain) * n // count] for n in range(count))
        return [self.contents.image(number) for number in numbers]

    def neighbours(self, count: int) -> list[Image]:
        """Return `count` plain images that were pushed one after the other."""
        first = (len(self.plain) - count) // 2
        return [self.contents.image(number) for number in self.plain[first : first + count]]

    def tags(self, count: int) -> list[int]:
        """Return the numbers of `count` tags, without `LATEST`."""
        few = self.contents.tags - 2
        return [few // 2 + (few - few // 2) * n // count for n in range(count)]

    def page(self, path: str, query: str = "", marker: str = "", limit: int = PAGE) -> Call:
        """Return a call for a page of a ``/v1`` list."""
        marked = f"&marker={marker}" if marker else ""
        return Call("GET", f"{path}?limit={limit}{marked}{query}")

    def last_page(self, path: str) -> Call:
        """Return a call for a full page near the end of a list whose markers are opaque."""
        if path not in self._markers:
            self._markers[path] = self._marker_near_end(path)
        return self.page(path, marker=self._markers[path])

    def _marker_near_end(self, path: str) -> str:
        before, marker = "", ""
        for limit in (_WALK, PAGE):  # large pages up to the last, then small ones
            marker = before
            while marker is not None:
                answer = self.site.ask_json(self.page(path, marker=marker, limit=limit))
                (rows,) = (value for value in answer.values() if isinstance(value, list))
                if len(rows) == limit:
                    before = marker
                marker = answer["meta"].get("marker")
        return before


class Case(NamedTuple):
    """A sequence of steps that is repeated."""

    name: str
    steps: Callable[[View, int], Iterator[tuple[str, Sequence[Call]]]]
    """Given a number of resources, yield steps: a name, and a call for each resource."""
    things: int


def reading(name: str, calls: Callable[[View, int], Sequence[Call]], count: int = 20) -> Case:
    """Return a case of one step of reads."""

    def steps(view: View, count: int) -> Iterator[tuple[str, Sequence[Call]]]:
        yield name, calls(view, count)

    return Case(name, steps, count)


def asking(name: str, target: Callable[[View], str]) -> Case:
    """Return a case that reads one resource."""
    return reading(name, lambda view, count: [Call("GET", target(view))] * count)


def listing(name: str, call: Callable[[View], Call]) -> Case:
    """Return a case that reads one page."""
    return reading(name, lambda view, count: [call(view)] * count)


def each(name: str, target: Callable[[View, Image], str], method: str = "GET") -> Case:
    """Return a case that reads a target of images from all over the repository."""

    def calls(view: View, count: int) -> Sequence[Call]:
        return [Call(method, target(view, image)) for image in view.spread(count)]

    return reading(name, calls)


def images(query: str) -> Callable[[View], Call]:
    """Return a function that makes a call for the first page of images with a filter."""
    return lambda view: view.page(f"{view.path}/images", query)


def _tags_under(prefix: str) -> Callable[[View], Call]:
    return lambda view: view.page(f"{view.path}/tags", f"&prefix={prefix}")


def _deep_images(status: str) -> Callable[[View], Call]:
    def call(view: View) -> Call:
        query = f"&tag_status={status}"
        return view.page(f"{view.path}/images", query, view.contents.image(2 * PAGE).id)

    return call


def _tag(view: View, number: int) -> str:
    return view.contents.tag_name(number)


def _move(view: View, number: int, to: int) -> Call:
    """Return the call that moves a tag to the original image of tag `to`."""
    digest = view.contents.image(view.contents.carrier(to)).digest
    body = _json({"digest": digest})
    return Call("PUT", f"{view.path}/tags/{_tag(view, number)}", body)


def _moving(view: View, count: int) -> Iterator[tuple[str, Sequence[Call]]]:
    numbers = view.tags(count)
    yield "tag move", [_move(view, number, number - 1) for number in numbers]
    yield "tag move back", [_move(view, number, number) for number in numbers]


def _changing(call: Callable[[View], Call]) -> Callable[[View, int], Sequence[Call]]:
    """Return a function that makes calls for a page, each after a change, so no cache helps."""

    def calls(view: View, count: int) -> Sequence[Call]:
        (number,) = view.tags(1)
        page = call(view)
        return [
            page._replace(before=_move(view, number, number - n % 2)) for n in range(1, count + 1)
        ]

    return calls


def _deleting(view: View, count: int) -> Iterator[tuple[str, Sequence[Call]]]:
    found = view.spread(count)
    paths = [f"{view.path}/images/{image.digest}" for image in found]
    yield "image delete", [Call("DELETE", path, status=204) for path in paths]
    yield "image restore", [_restore(view, [image]) for image in found]


def _restore(view: View, found: Sequence[Image]) -> Call:
    body = _json({"digests": [image.digest for image in found]})
    return Call("POST", f"{view.path}/images/restore", body)


def _batching(
    place: str, choose: Callable[[View, int], list[Image]]
) -> Callable[[View, int], Iterator[tuple[str, Sequence[Call]]]]:
    """Return the steps of batches of the images that `choose` selects."""

    def steps(view: View, count: int) -> Iterator[tuple[str, Sequence[Call]]]:
        found = choose(view, count * BATCH)
        batches = [found[at : at + BATCH] for at in range(0, len(found), BATCH)]
        path = f"{view.path}/images/batch-delete"
        bodies = [_json({"digests": [image.digest for image in batch]}) for batch in batches]
        yield f"batch-delete of {BATCH}, {place}", [Call("POST", path, body) for body in bodies]
        yield f"restore of {BATCH}, {place}", [_restore(view, batch) for batch in batches]

    return steps


def _pushing(view: View, count: int) -> Iterator[tuple[str, Sequence[Call]]]:
    numbers = [next(view.serial) for _ in range(count)]
    bodies = [_manifest(view, number) for number in numbers]
    path = f"{view.registry}/manifests"
    yield (
        "/v2 manifest PUT, new, new tag",
        [
            Call("PUT", f"{path}/new-{number}", body, 201, MANIFEST_TYPE)
            for number, body in zip(numbers, bodies, strict=True)
        ],
    )
    moved = [_tag(view, number) for number in view.tags(count)]
    yield (
        "/v2 manifest PUT, known, tag moves",
        [
            Call("PUT", f"{path}/{tag}", body, 201, MANIFEST_TYPE)
            for tag, body in zip(moved, bodies, strict=True)
        ],
    )
    yield (
        "/v2 manifest DELETE by tag",
        [Call("DELETE", f"{path}/new-{number}", status=202) for number in numbers],
    )
    for tag in view.tags(count):
        view.site.ask(_move(view, tag, tag))
    yield (
        "/v2 manifest DELETE by digest",
        [Call("DELETE", f"{path}/{digest_of(body)}", status=202) for body in bodies],
    )


def _indexing(view: View, count: int) -> Iterator[tuple[str, Sequence[Call]]]:
    bodies = [_index(image, next(view.serial)) for image in view.spread(count)]
    path = f"{view.registry}/manifests"
    yield (
        "/v2 index PUT, new",
        [Call("PUT", f"{path}/{digest_of(body)}", body, 201, INDEX_TYPE) for body in bodies],
    )
    yield (
        "/v2 index DELETE",
        [Call("DELETE", f"{path}/{digest_of(body)}", status=202) for body in bodies],
    )


def _index(child: Image, number: int) -> bytes:
    """Return a new index of one existing image."""
    descriptor = {"mediaType": MANIFEST_TYPE, "digest": child.digest, "size": len(child.body)}
    return _json(
        {
            "schemaVersion": 2,
            "mediaType": INDEX_TYPE,
            "manifests": [descriptor],
            "annotations": {"org.opencontainers.image.version": f"new.{number}"},
        }
    )


def _manifest(view: View, number: int) -> bytes:
    """Return a new manifest of existing blobs."""
    document = json.loads(view.contents.image(view.plain[number % len(view.plain)]).body)
    document["annotations"] = {"org.opencontainers.image.version": f"new.{number}"}
    return _json(document)


def _housekeeping(view: View, count: int) -> Iterator[tuple[str, Sequence[Call]]]:
    names = [f"new/service-{next(view.serial)}" for _ in range(count)]
    bodies = [_json({"name": name}) for name in names]
    yield (
        "repository create",
        [Call("POST", "/v1/repositories", body, 201) for body in bodies],
    )
    found = view.site.ask_json(view.page("/v1/repositories", "&name_prefix=new/", limit=count))
    identifiers = [repository["id"] for repository in found["repositories"]]
    yield (
        "repository delete",
        [Call("DELETE", f"/v1/repositories/{each}", status=204) for each in identifiers],
    )


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _image(suffix: str) -> Callable[[View, Image], str]:
    return lambda view, image: f"{view.path}/images/{image.digest}{suffix}"


CASES: Final = (
    listing("images, first page", images("")),
    listing("images, deep page", _deep_images("any")),
    listing("images tagged", images("&tag_status=tagged")),
    listing("images tagged, deep page", _deep_images("tagged")),
    listing("images untagged", images("&tag_status=untagged")),
    listing("images under rare- (5 tags)", images("&tag_prefix=rare-")),
    listing("images under mid- (4 % of tags)", images("&tag_prefix=mid-")),
    listing("images under old- (8 %, the oldest)", images("&tag_prefix=old-")),
    listing("images under v- (nearly all)", images("&tag_prefix=v-")),
    reading("images under v-, after a change", _changing(images("&tag_prefix=v-")), 6),
    reading("images under mid-, after a change", _changing(images("&tag_prefix=mid-")), 6),
    each("image by digest", _image("")),
    each("image by id", lambda view, image: f"{view.path}/images/{image.id}"),
    each("image manifest", _image("/manifest")),
    each("image referrers", _image("/referrers")),
    each("image storage", _image("/storage")),
    listing("tags, first page", lambda view: view.page(f"{view.path}/tags")),
    listing("tags, deep page", lambda view: view.last_page(f"{view.path}/tags")),
    listing("tags under rare-", _tags_under("rare-")),
    listing("tags under v-", _tags_under("v-")),
    reading("tags under v-, after a change", _changing(_tags_under("v-")), 6),
    asking("tag", lambda view: f"{view.path}/tags/{_tag(view, view.tags(3)[1])}"),
    listing(
        "tag history",
        lambda view: view.page(f"{view.path}/tags/{_tag(view, view.tags(3)[1])}/history"),
    ),
    listing(
        "tag history of one that moves",
        lambda view: view.page(f"{view.path}/tags/{LATEST}/history"),
    ),
    listing("deleted images", lambda view: view.page(f"{view.path}/images/deleted")),
    listing(
        "deleted images, deep page", lambda view: view.last_page(f"{view.path}/images/deleted")
    ),
    listing("deleted tags", lambda view: view.page(f"{view.path}/deleted-tags")),
    listing("deleted tags, deep page", lambda view: view.last_page(f"{view.path}/deleted-tags")),
    listing("deleted repositories", lambda view: view.page("/v1/repositories/deleted")),
    listing("repositories, first page", lambda view: view.page("/v1/repositories")),
    listing("repositories, deep page", lambda view: view.last_page("/v1/repositories")),
    listing(
        "repositories under few/", lambda view: view.page("/v1/repositories", "&name_prefix=few/")
    ),
    listing(
        "repositories under many/", lambda view: view.page("/v1/repositories", "&name_prefix=many/")
    ),
    asking("repository", lambda view: view.path),
    asking("/v2 tag list, first page", lambda view: f"{view.registry}/tags/list?n={PAGE}"),
    asking(
        "/v2 tag list, deep page",
        lambda view: f"{view.registry}/tags/list?n={PAGE}&last={_tag(view, view.tags(3)[2])}",
    ),
    asking("/v2 catalog, first page", lambda _: f"/v2/_catalog?n={PAGE}"),
    asking(
        "/v2 catalog, deep page",
        lambda view: (
            f"/v2/_catalog?n={PAGE}&last={HANDLE}/many/"
            f"service-{view.contents.repositories - 2 * PAGE:06d}"
        ),
    ),
    reading(
        "/v2 manifest GET by tag",
        lambda view, count: [
            Call("GET", f"{view.registry}/manifests/{_tag(view, tag)}") for tag in view.tags(count)
        ],
    ),
    reading(
        "/v2 manifest HEAD by tag",
        lambda view, count: [
            Call("HEAD", f"{view.registry}/manifests/{_tag(view, tag)}") for tag in view.tags(count)
        ],
    ),
    each(
        "/v2 manifest GET by digest",
        lambda view, image: f"{view.registry}/manifests/{image.digest}",
    ),
    each(
        "/v2 manifest HEAD by digest",
        lambda view, image: f"{view.registry}/manifests/{image.digest}",
        "HEAD",
    ),
    each("/v2 referrers", lambda view, image: f"{view.registry}/referrers/{image.digest}"),
    Case("tag move", _moving, 10),
    Case("image delete, restore", _deleting, 10),
    Case("batch-delete, restore", _batching("neighbours", View.neighbours), 2),
    # In a small repository the rows of ten images share database pages; these rows share none.
    Case("batch-delete, restore, all over", _batching("all over", View.spread), 2),
    Case("push and delete", _pushing, 10),
    Case("push and delete of an index", _indexing, 10),
    Case("repository create, delete", _housekeeping, 5),
)


class Slow(NamedTuple):
    """A slow operation on the large registry."""

    name: str
    call: Callable[[View], Call]
    limit: float | None = None
    """Limit in seconds."""


def _preview(view: View) -> Call:
    body = _json({"rules": RULES})
    return Call("POST", f"{view.path}/lifecycle-policy/preview?limit={PAGE}", body)


SLOW: Final = (
    Slow("lifecycle preview, five rules", _preview, 5.0),
    Slow("storage usage of the account", lambda _: Call("GET", "/v1/storage-usage")),
    Slow(
        "storage usage by repository",
        lambda _: Call("GET", "/v1/storage-usage?group_by=repository"),
    ),
    Slow("storage of the repository", lambda view: Call("GET", f"{view.path}/storage")),
)


def quick(view: View) -> Call:
    """Return a quick call; its latency shows whether a slow operation delays other clients."""
    return Call("GET", f"{view.path}/images/{view.contents.image(0).digest}")
