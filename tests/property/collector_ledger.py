"""What clients were told, and when: which images a registry must have, whatever it collects."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

NEVER: Final = 1 << 60


@dataclass(eq=False)
class _Span:
    """When a request was under way."""

    begun: int
    ended: int = NEVER


@dataclass
class Ledger:
    """Acknowledged pushes, and deletions that may have taken effect; `moment` is the time."""

    moment: Callable[[], int]
    _pushes: dict[tuple[str, str], list[_Span]] = field(default_factory=lambda: defaultdict(list))
    _deletions: dict[str, list[_Span]] = field(default_factory=lambda: defaultdict(list))

    def begin(self) -> int:
        """Return the moment at which a push or a pull begins."""
        return self.moment()

    def pushed(self, repository: str, digest: str, begun: int) -> None:
        """Note that an image was acknowledged just now."""
        self._pushes[repository, digest].append(_Span(begun, self.moment()))

    @contextmanager
    def deleting(self, *subjects: str) -> Iterator[Callable[[], None]]:
        """Note a deletion while it is under way and afterwards; call what is given if it failed."""
        span = _Span(self.moment())
        for subject in subjects:
            self._deletions[subject].append(span)
        failed: list[bool] = []
        try:
            yield lambda: failed.append(True)
        finally:
            span.ended = self.moment()
            if failed:
                for subject in subjects:
                    self._deletions[subject].remove(span)

    def must_have(self, repository: str, digest: str, since: int | None = None) -> bool:
        """Say whether an image was acknowledged (before `since`) and surely not deleted."""
        deletions = (
            self._deletions[image(repository, digest)] + self._deletions[image(repository, "")]
        )
        return any(
            push.ended <= (self.moment() if since is None else since)
            and all(deletion.ended < push.begun for deletion in deletions)
            for push in self._pushes[repository, digest]
        )

    @property
    def acknowledged(self) -> Iterator[tuple[str, str]]:
        """Yield repository and digest of every image that was pushed."""
        yield from list(self._pushes)


def image(repository: str, digest: str) -> str:
    """Name an image to `Ledger.deleting`; without a digest, all of the repository."""
    return f"{repository}@{digest}"
