"""Stores of tests that stand before another store: each call is a step, or is passed on by name."""

from __future__ import annotations

from typing import Any, Final

import pytest

from registry.blobstore.store import BlobReader, BlobSweeper, BlobWriter, Staged
from tests.fault.seams import SteppingStaged, SteppingStore
from tests.property.interleaved_stores import InterleavedStaged, SteppedStore

STORE: Final = (BlobReader, BlobWriter, BlobSweeper)
STAGED: Final = (Staged,)


def public(interfaces: tuple[type, ...]) -> set[str]:
    """Return the public names of interfaces."""
    return {name for each in interfaces for name in vars(each) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("stepping", "interfaces"),
    [
        (SteppingStore, STORE),
        (SteppedStore, STORE),
        (SteppingStaged, STAGED),
        (InterleavedStaged, STAGED),
    ],
)
def test_each_method_is_either_a_step_or_passed_on(
    stepping: Any,  # noqa: ANN401 - one of several classes
    interfaces: tuple[type, ...],
) -> None:
    assert public(interfaces) == stepping.STEPS | stepping.PASSED_ON
    assert not stepping.STEPS & stepping.PASSED_ON
    assert not set(vars(stepping)) & stepping.PASSED_ON


@pytest.mark.parametrize("stepping", [SteppingStore, SteppingStaged, InterleavedStaged])
def test_each_step_has_a_method_of_its_own(stepping: Any) -> None:  # noqa: ANN401 - as above
    assert set(vars(stepping)) >= stepping.STEPS
