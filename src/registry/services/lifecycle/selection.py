"""Which images a lifecycle policy takes: a pure function of images, rules and the moment.

*Held* images stay whatever the rules say: a child of an index that stays, a referrer whose
subject stays. Pins and keep rules hold too, and for an hour the push or the restoration itself.
What is not held stands on its own and is claimed by the first expire rule that selects it. When an
image expires,

- its referrers expire with it, unless something else holds them;
- its children stand on their own from then on, and the rules see them as any other image.

So the outcome is the least set that is closed under this, the same in whatever order images are
looked at: as if the policy were run again and again until it takes nothing more. It is reached
in one pass because a rule that keeps the newest only ever sees more images, never fewer.

Images that hold each other (an index about its own child) stay until someone deletes them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from heapq import heappush, heappushpop
from typing import Final, NamedTuple

from cloudcore.clock import MICROSECONDS
from registry.services.lifecycle.rules import LifecyclePolicy, Rule

HOUR: Final = 3600 * MICROSECONDS
"""How long what was pushed or restored is left alone."""


class Image(NamedTuple):
    """What the rules look at in an image; moments are in microseconds."""

    id: str
    rules: int
    """Those that select it (see `LifecyclePolicy`)."""
    pushed_at: int
    """The newest of `keep_last` are told by this."""
    arrived_at: int
    """When it was pushed, or last restored."""
    renewed_at: int
    """From when it ages: its arrival, a tag's last arrival, or the loss of its last tag."""
    last_pulled_at: int | None = None
    subject: str | None = None
    """The id of the image it is about, when that is there."""
    is_pinned: bool = False
    is_held: bool = False
    """By an image that is not among those looked at."""
    is_spared: bool = False
    """It does not go this time, but counts among what the rules see."""
    is_orphan: bool = False
    """Its subject has expired already, and it is to follow."""


class Expired(NamedTuple):
    """Why an image goes."""

    rule: int | None
    """The place of the rule that took it or its subject; None: of a subject gone before."""
    subject: str | None
    """The image it goes with."""


class Selection(NamedTuple):
    """What a policy takes."""

    expired: dict[str, Expired]
    """By id, in an order in which they can be deleted: an index before its children, a subject
    before its referrers and these at once."""
    kept: dict[int, int]
    """How many images each rule keeps, by the rule's place: by `keep`, or as its newest."""
    newest: dict[int, list[str]]
    """The images that a rule's `keep_last` keeps, by the rule's place."""


def select(
    policy: LifecyclePolicy,
    images: Sequence[Image],
    children: Mapping[str, Sequence[str]],
    now: int,
) -> Selection:
    """Return what `policy` takes of `images`; `children` are those of each index, by ids.

    Children that are not among the images are passed over.
    """
    return _Evaluation(policy, images, children, now).run()


class _Evaluation:
    """The state of one selection."""

    def __init__(
        self,
        policy: LifecyclePolicy,
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
        self._pools: dict[int, list[tuple[int, str]]] = {}
        self._keepers: Counter[str] = Counter()
        self._kept: Counter[int] = Counter()
        self._leaving: list[tuple[str, Expired]] = []
        self._expired: dict[str, Expired] = {}

    def run(self) -> Selection:
        for image in [each for each in self._images.values() if self._stands(each)]:
            self._see(image)
            while self._leaving:
                self._expire(*self._leaving.pop())
        newest = {rule: [name for _, name in pool] for rule, pool in self._pools.items()}
        kept = {rule: len(pool) for rule, pool in newest.items()}
        return Selection(self._expired, {**self._kept, **kept}, newest)

    def _stands(self, image: Image) -> bool:
        """Say whether no index or subject that stays holds an image."""
        return not (
            self._parents[image.id]
            or image.is_held
            or (image.subject in self._images and image.subject not in self._expired)
        )

    def _expire(self, name: str, why: Expired) -> None:
        self._expired[name] = why
        # What is put on last leaves first: referrers at once after their subject.
        for child in self._children.get(name, ()):
            self._parents[child] -= 1
            self._release(child)
        for referrer in self._referrers.get(name, ()):
            self._release(referrer)

    def _release(self, name: str) -> None:
        image = self._images.get(name)
        if image is not None and self._stands(image):
            self._see(image)

    def _see(self, image: Image) -> None:
        """Let the rules see an image that stands on its own; happens once to each."""
        if image.is_pinned:
            return
        for number, rule in self._selecting(image.rules & self._policy.keeping):
            if rule.keep_last is None:
                self._kept[number] += 1
                self._keepers[image.id] += 1
                continue
            outdone = self._enter(number, rule.keep_last, image)
            if outdone != image.id:
                self._keepers[image.id] += 1
            if outdone is not None and outdone != image.id:
                self._unkeep(outdone)
        if not self._keepers[image.id]:
            self._judge(image)

    def _unkeep(self, name: str) -> None:
        self._keepers[name] -= 1
        if not self._keepers[name]:
            self._judge(self._images[name])

    def _judge(self, image: Image) -> None:
        """Expire an image that nothing keeps with its subject, or as the rules say."""
        subject = None if image.subject not in self._expired else image.subject
        if (subject is not None or image.is_orphan) and not self._is_spared(image):
            taken_by = None if subject is None else self._expired[subject].rule
            self._leaving.append((image.id, Expired(taken_by, subject)))
            return
        for number, rule in self._selecting(image.rules & ~self._policy.keeping):
            self._claim(number, rule, image)
            return

    def _claim(self, number: int, rule: Rule, image: Image) -> None:
        if rule.keep_last is not None:
            outdone = self._enter(number, rule.keep_last, image)
            taken = None if outdone is None else self._images[outdone]
        else:
            taken = image if self._is_due(rule, image) else None
        if taken is not None and not self._is_spared(taken):
            self._leaving.append((taken.id, Expired(number, None)))

    def _enter(self, number: int, size: int, image: Image) -> str | None:
        """Count an image among a rule's newest, and return the one that is no longer."""
        pool = self._pools.setdefault(number, [])
        entry = (image.pushed_at, image.id)
        if len(pool) < size:
            heappush(pool, entry)
            return None
        return heappushpop(pool, entry)[1]

    def _is_due(self, rule: Rule, image: Image) -> bool:
        if rule.older_than is not None:
            return self._now - image.renewed_at > rule.older_than
        if rule.not_pulled_for is None:
            return True  # for ``untagged``, without a condition
        used_at = max(image.renewed_at, image.last_pulled_at or 0)
        return self._now - used_at > rule.not_pulled_for

    def _is_spared(self, image: Image) -> bool:
        return image.is_spared or self._now - image.arrived_at < HOUR

    def _selecting(self, rules: int) -> Iterator[tuple[int, Rule]]:
        """Yield the rules of a set, by priority."""
        while rules:
            number = (rules & -rules).bit_length() - 1
            yield number, self._policy.rules[number]
            rules &= rules - 1
