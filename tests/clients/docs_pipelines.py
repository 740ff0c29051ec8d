"""The pipelines of the documentation, as what a CI system gives to a shell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import yaml

from tests.databases import ROOT

_BLOCK: Final = re.compile(r"^```(yaml|groovy)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_STEP: Final = re.compile(r"\bsh '([^'\n]*)'")


def pipelines_of(page: str) -> dict[str, str]:
    """Return the script of each CI system's pipeline on a page; the first failure ends it."""
    found = {}
    for kind, block in _BLOCK.findall((ROOT / page).read_text()):
        if kind == "groovy":
            found["Jenkins"] = _script(_STEP.findall(block))
            continue
        document = yaml.safe_load(block)
        if "jobs" in document:
            found["GitHub"] = _script(_runs(document))
        elif "image" in document:
            job = document["image"]
            found["GitLab"] = _script([*job["before_script"], *job["script"]])
    return found


def _runs(document: Any) -> list[str]:  # noqa: ANN401 - YAML
    steps = [step for job in document["jobs"].values() for step in job["steps"]]
    return [step["run"] for step in steps if "run" in step]


def _script(lines: Sequence[str]) -> str:
    kept = [line for line in lines if not line.startswith("apk add")]
    return "\n".join(("(", "set -e", *kept, ")"))
