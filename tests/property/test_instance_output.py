"""The output of an instance: its end is kept, however it came."""

from __future__ import annotations

import os
from errno import ENOSPC
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloudcore.nodes import output
from cloudcore.nodes.output import Output, tail

MOST = 50


@given(
    written=st.lists(st.binary(max_size=130), max_size=12),
    most=st.integers(0, 200),
    again=st.booleans(),
)
def test_the_end_of_an_output_is_kept_in_two_bounded_files(
    *, written: list[bytes], most: int, again: bool
) -> None:
    with TemporaryDirectory() as made, pytest.MonkeyPatch.context() as patched:
        folder = Path(made)
        patched.setattr(output, "MOST_BYTES", MOST)
        kept = Output(folder)
        for data in written:
            if again:
                kept = Output(folder)  # as by the shim of the next run
            kept.write(data)
        everything = b"".join(written)
        newer = len(everything) % MOST
        held = min(len(everything), MOST + newer)
        found = tail(folder, most)
        assert found == everything[len(everything) - min(most, held) :]
        assert all(each.stat().st_size <= MOST for each in folder.iterdir())


def test_what_a_full_disk_does_not_take_is_dropped_and_what_comes_later_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Output(tmp_path)
    with monkeypatch.context() as full:
        full.setattr(os, "write", Mock(side_effect=OSError(ENOSPC, "no space left")))
        kept.write(b"lost\n")
    kept.write(b"later\n")
    assert tail(tmp_path, 100) == b"later\n"
