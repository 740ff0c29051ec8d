"""Render the examples of the Helm chart by Helm's own engine: ``python -m tests.chart_manifests``.

It needs ``pip install helm-python-sdk``, which is Helm 4 as a library, 75 MB, and so is not among
the dependencies of the tests. Each file names the digest of what it was rendered from.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
from pathlib import Path
from typing import Any, Final

import yaml

HELM: Final = Path(__file__).resolve().parent.parent / "deploy" / "helm"
CHART: Final = HELM / "entrepot"
EXAMPLES: Final = tuple(sorted((HELM / "examples").glob("*.yaml")))
RENDERED: Final = HELM / "rendered"


def source_digest(example: Path) -> str:
    """Return the digest of the chart and of the values of an example."""
    digest = hashlib.sha256()
    for path in (*sorted(each for each in CHART.rglob("*") if each.is_file()), example):
        content = path.read_bytes()
        digest.update(f"{path.relative_to(HELM)} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def header(example: Path) -> str:
    """Return the first lines of a rendered file."""
    return (
        f"# examples/{example.name}, rendered by python -m tests.chart_manifests\n"
        f"# from sha256:{source_digest(example)}\n"
    )


def render(helm: Any, example: Path) -> str:  # noqa: ANN401 - a module that is not installed
    """Return the manifests of an example, as ``helm template`` prints them."""
    values = yaml.safe_load(example.read_text())
    chart = helm.Chart.load(CHART)
    rendered = chart.render(values, name="entrepot", namespace="registry")
    parts = [
        f"---\n# Source: {name}\n{text.strip()}\n"
        for name, text in sorted(rendered.items())
        if text.strip() and not name.endswith("NOTES.txt")
    ]
    return header(example) + "".join(parts)


def main() -> int:
    """Write all files anew; return the exit status."""
    helm = importlib.import_module("helm_python")
    found = helm.lint(CHART, yaml.safe_load(EXAMPLES[0].read_text()), strict=True)
    for message in found["messages"]:
        print(message["path"], message["error"], file=sys.stderr)  # noqa: T201 - a command
    RENDERED.mkdir(exist_ok=True)
    for example in EXAMPLES:
        (RENDERED / example.name).write_text(render(helm, example))
    return int(bool(found["errors"]))


if __name__ == "__main__":
    sys.exit(main())
