"""What the machine's folder of instances may hold after a loss of power, or by a mistake."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from cloudcore.compute.keeper.program import STATE
from cloudcore.compute.runc import runc_driver


@pytest.mark.parametrize("torn", [b"", b'{"status": "run', b"\0\0\0\0", b"null"])
def test_a_torn_state_of_one_instance_hides_no_other(tmp_path: Path, torn: bytes) -> None:
    for name, state in (("one", torn), ("other", b'{"status": "stopped", "exit_code": 3}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / STATE).write_bytes(state)

    seen = asyncio.run(runc_driver(tmp_path, 1_000_000).seen())

    assert seen["one"].status == "stopped"
    assert seen["one"].exit_code is None
    assert seen["other"].exit_code == 3
