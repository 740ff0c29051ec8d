"""Select the images that a lifecycle policy expires: a pure function of images, rules and time.

*Held* images are kept regardless of the rules: the children of a kept index, and the referrers of a
kept subject. Pins and keep rules keep images too, and nothing expires in the first hour after its
push or restoration. An image that is not held is *free*, and is claimed by the first expire rule
that selects it. When an image expires,

- its referrers expire with it, unless something else holds them;
- its children become free, and the rules apply to them like to any other image.

The result is the smallest set closed under these rules, independent of the order of the images: as
if the policy were run repeatedly until nothing more expires. One pass is enough, because a rule
with `keep_last` only ever gets more images, never fewer.

Images that hold each other (such as an index whose subject is its own child) stay until a client
deletes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappush, heappushpop
from typing import Final, NamedTuple

from cloudcore.clock import MICROSECONDS
from registry.services.lifecycle.rules import CompiledPolicy, CompiledRule

HOUR: Final = 3600 * MICROSECONDS
"""How long an image is kept after its push or restoration, in microseconds."""


class Image(NamedTuple):
    """The facts about an image that rules depend on; times are in microseconds since the epoch."""

    id: str
    rules: int
    """The set of rules that select the image (see `CompiledPolicy`)."""
    pushed_at: int
    """The push time. `keep_last` keeps the images with the latest."""
    arrived_at: int
    """The time of the image's push, or of its last restoration."""
    renewed_at: int
    """The start of the image's age: its arrival, or when it last got a tag, or lost its last tag.
    """
    last_pulled_at: int | None = None
    subject: str | None = None
    """The id of the image's subject, if that exists."""
    is_pinned: bool = False
    is_held: bool = False
    """True if an image that is not part of the selection holds this one."""
    is_excluded: bool = False
    """True if the image is not deleted in this run, but counted by the rules."""
    is_orphan: bool = False
    """True if the image's subject has already expired, so that the image expires too."""


class Expired(NamedTuple):
    """Why an image expires: by a rule, or with its subject."""

    rule: int | None
    """The number of the rule that expires the image or its subject; None if an earlier plan expired
    the subject."""
    subject: str | None
    """The id of the subject with which the image expires, if any."""


class Selection(NamedTuple):
    """The images that a policy expires, and how many each rule keeps."""

    expired: dict[str, Expired]
    """By id, in an order in which they can be deleted: an index before its children, and a subject
    directly before its referrers."""
    kept: dict[int, int]
    """The number of images that each keep rule or `keep_last` keeps, by the rule's number."""
    newest: dict[int, list[str]]
    """The ids that each `keep_last` keeps, by the rule's number."""


def select(
    policy: CompiledPolicy, images: Sequence[Image], children: Mapping[str, Sequence[str]], now: int
) -> Selection:
    """Return the images that `policy` expires; `children` maps index ids to children's ids.

    Children that are not in `images` are ignored.
    """
    return _Evaluation(policy, images, children, now).run()


class _Evaluation:
    """The state of one selection."""

    def __init__(
        self,
        policy: CompiledPolicy,
        images: Sequence[Image],
        children: Mapping[str, Sequence[str]],
        now: int,
    ) -> None:
        self._policy = policy
        self._children = children
        self._now = now
        self._images = {image.id: image for image in images}
        self._parents = Counter(
            child for parent, below in children.items() if parent in self._images for child in below
        )
        self._referrers: dict[str, list[str]] = {}
        for image in images:
            if image.subject in self._images:
                self._referrers.setdefault(image.subject, []).append(image.id)
        self._seen: set[str] = set()
        self._pools: dict[int, list[tuple[int, str]]] = {}
        self._keepers: Counter[str] = Counter()
        self._kept: Counter[int] = Counter()
        self._leaving: list[tuple[str, Expired]] = []
        self._expired: dict[str, Expired] = {}

    def run(self) -> Selection:
        for image in [each for each in self._images.values() if self._is_free(each)]:
            self._see(image)
            while self._leaving:
                self._expire(*self._leaving.pop())
        newest = {rule: [name for _, name in pool] for rule, pool in self._pools.items()}
        kept = {rule: len(pool) for rule, pool in newest.items()}
        return Selection(self._expired, {**self._kept, **kept}, newest)

    def _is_free(self, image: Image) -> bool:
        """Return True if neither a kept index nor a kept subject holds the image."""
        return not (
            self._parents[image.id]
            or image.is_held
            or (image.subject in self._images and image.subject not in self._expired)
        )

    def _expire(self, name: str, why: Expired) -> None:
        self._expired[name] = why
        # A stack: what is pushed last is popped first, so referrers follow their subject.
        for child in self._children.get(name, ()):
            self._parents[child] -= 1
            self._release(child)
        for referrer in self._referrers.get(name, ()):
            self._release(referrer)

    def _release(self, name: str) -> None:
        image = self._images.get(name)
        if image is not None and self._is_free(image):
            self._see(image)

    def _see(self, image: Image) -> None:
        """Apply the rules to a free image, unless that was done before.

        An expiring index frees an image twice if the image is both its child and its referrer.
        """
        if image.is_pinned or image.id in self._seen:
            return
        self._seen.add(image.id)
        for number, rule in self._selecting(image.rules & self._policy.keeping):
            if rule.keep_last is None:
                self._kept[number] += 1
                self._keepers[image.id] += 1
                continue
            displaced = self._enter(number, rule.keep_last, image)
            if displaced != image.id:
                self._keepers[image.id] += 1
            if displaced is not None and displaced != image.id:
                self._unkeep(displaced)
        if not self._keepers[image.id]:
            self._judge(image)

    def _unkeep(self, name: str) -> None:
        self._keepers[name] -= 1
        if not self._keepers[name]:
            self._judge(self._images[name])

    def _judge(self, image: Image) -> None:
        """Expire an unprotected image, with its subject or by the first rule that selects it."""
        subject = None if image.subject not in self._expired else image.subject
        if (subject is not None or image.is_orphan) and not self._is_protected(image):
            taken_by = None if subject is None else self._expired[subject].rule
            self._leaving.append((image.id, Expired(taken_by, subject)))
            return
        first = next(self._selecting(image.rules & ~self._policy.keeping), None)
        if first is not None:
            self._claim(*first, image)

    def _claim(self, number: int, rule: CompiledRule, image: Image) -> None:
        if rule.keep_last is not None:
            displaced = self._enter(number, rule.keep_last, image)
            taken = None if displaced is None else self._images[displaced]
        else:
            taken = image if self._is_due(rule, image) else None
        if taken is not None and not self._is_protected(taken):
            self._leaving.append((taken.id, Expired(number, None)))

    def _enter(self, number: int, size: int, image: Image) -> str | None:
        """Add an image to the `size` newest of a rule; return the id that drops out, or None."""
        pool = self._pools.setdefault(number, [])
        entry = (image.pushed_at, image.id)
        if len(pool) < size:
            heappush(pool, entry)
            return None
        return heappushpop(pool, entry)[1]

    def _is_due(self, rule: CompiledRule, image: Image) -> bool:
        if rule.older_than is not None:
            return self._now - image.renewed_at > rule.older_than
        if rule.not_pulled_for is None:
            return True  # a rule for ``untagged`` without a condition
        used_at = max(image.renewed_at, image.last_pulled_at or 0)
        return self._now - used_at > rule.not_pulled_for

    def _is_protected(self, image: Image) -> bool:
        return image.is_excluded or self._now - image.arrived_at < HOUR

    def _selecting(self, rules: int) -> Iterator[tuple[int, CompiledRule]]:
        """Yield the rules of a set, each with its number, by priority."""
        while rules:
            number = (rules & -rules).bit_length() - 1
            yield number, self._policy.rules[number]
            rules &= rules - 1
