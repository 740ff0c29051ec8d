"""What the project asks of the packages it stands on."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parent.parent.parent


def test_a_package_whose_insides_are_overridden_is_bounded_above() -> None:
    """`cloudcore.serving` overrides methods of ``uvicorn.Server`` that it does not document."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (spec,) = [spec for spec in project["dependencies"] if spec.startswith("uvicorn")]
    found = re.fullmatch(r"uvicorn>=0\.(\d+),<0\.(\d+)", spec)
    assert found is not None, spec
    for lock in ("requirements.txt", "requirements-dev.txt"):
        (locked,) = re.findall(r"^uvicorn==0\.(\d+)\.", (ROOT / lock).read_text(), re.MULTILINE)
        assert int(locked) == int(found[2]) - 1, "raise the bound only after the tests have passed"
