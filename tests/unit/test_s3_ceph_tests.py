"""The list of ceph's S3 tests: each applies or has a reason, and the docs tell the result."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
LIST: Final = ROOT / "tests" / "spec" / "s3_ceph_tests.txt"
LEAST_SHARE: Final = 0.95
_NAME: Final = re.compile(r"test_(s3|headers)\.py::test_\w+")
_REASON: Final = re.compile(r"\[excluded\] [A-Z].{15,}\.")


def sections() -> dict[str, list[str]]:
    """Return the names of tests by the headings that they stand under."""
    found: dict[str, list[str]] = {}
    for line in LIST.read_text().splitlines():
        if line.startswith("["):
            assert line not in found, line
            names = found[line] = []
        elif line and not line.startswith("#"):
            names.append(line)
    return found


def test_every_test_stands_once_and_has_a_reason_if_it_is_excluded() -> None:
    found = sections()
    names = [name for listed in found.values() for name in listed]
    assert len(set(names)) == len(names)
    assert all(_NAME.fullmatch(name) for name in names)
    assert all(listed == sorted(listed) and listed for listed in found.values())
    applies, *excluded = found
    assert applies == "[applies]"
    assert all(_REASON.fullmatch(heading) for heading in excluded)


def test_the_docs_tell_how_many_of_those_that_apply_passed() -> None:
    page = (ROOT / "docs/reference/s3-endpoint.md").read_text()
    told = re.findall(r"([0-9]+) of\s+the ([0-9]+) that apply", page)
    ((passed, of),) = told
    assert int(of) == len(sections()["[applies]"])
    assert LEAST_SHARE * int(of) <= int(passed) <= int(of)
