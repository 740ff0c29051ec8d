"""The Helm chart: its examples as Helm rendered them, by the schemas of Kubernetes itself."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from registry.settings.reading import NAMES
from registry.settings.texts import PREFIX
from tests.chart_manifests import CHART, EXAMPLES, HELM, RENDERED, header, render

SETTINGS: Final = {f"{PREFIX}{name.upper()}" for name in NAMES}
VERSIONS: Final = ("1.28", "1.37")
"""The oldest Kubernetes that the chart takes, and the newest that is known."""


def manifests(example: Path) -> list[Any]:
    """Return what was rendered of an example."""
    return list(yaml.safe_load_all((RENDERED / example.name).read_text()))


def containers(example: Path) -> Iterator[tuple[Mapping[str, Any], Mapping[str, Any]]]:
    """Yield the containers of an example, each with its pod."""
    for each in manifests(example):
        pod = each["spec"].get("template", {}).get("spec", {}) if "spec" in each else {}
        for container in (*pod.get("initContainers", ()), *pod.get("containers", ())):
            yield container, pod


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_manifests_are_what_kubernetes_takes(example: Path) -> None:
    for each in manifests(example):
        for version in VERSIONS:
            kubernetes_validate.validate(each, version, strict=True)


def test_the_schemas_refuse_what_kubernetes_does_not_know() -> None:
    (deployment, *_) = manifests(HELM / "examples" / "fleet.yaml")
    deployment["spec"]["replica"] = 3
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(deployment, VERSIONS[0], strict=True)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_manifests_were_rendered_from_this_chart(example: Path) -> None:
    """If this fails: ``pip install helm-python-sdk``, ``python -m tests.chart_manifests``."""
    assert (RENDERED / example.name).read_text().startswith(header(example))


def test_each_example_is_rendered_and_no_more() -> None:
    assert {each.name for each in RENDERED.iterdir()} == {each.name for each in EXAMPLES}


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_helm_renders_the_same_where_it_is_installed(example: Path) -> None:
    helm = pytest.importorskip("helm_python", reason="helm-python-sdk is not installed")
    assert render(helm, example) == (RENDERED / example.name).read_text()


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.stem)
def test_containers_are_confined_and_told_settings_that_there_are(example: Path) -> None:
    for container, pod in containers(example):
        assert pod["securityContext"]["runAsNonRoot"]
        assert container["securityContext"]["readOnlyRootFilesystem"]
        assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
        given = [each["name"] for each in container.get("env", ())]
        assert len(given) == len(set(given))
        assert {name for name in given if name.startswith(PREFIX)} <= SETTINGS


@pytest.mark.parametrize("file", ["container/compose.yaml", "fleet/compose.yaml"])
def test_compose_files_tell_settings_that_there_are(file: str) -> None:
    services = yaml.safe_load((HELM.parent / file).read_text())["services"]
    given = {name for each in services.values() for name in each.get("environment", ())}
    told = {name for name in given if name.startswith(PREFIX)}
    assert told
    assert told <= SETTINGS


def test_every_value_is_in_the_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())
    assert set(values) == set(schema["properties"]) - {"global"}
    for name, value in values.items():
        described = schema["properties"][name].get("properties")
        if described is not None:
            assert set(value) == set(described), name


def test_the_chart_is_of_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((HELM.parent.parent / "pyproject.toml").read_text())["project"]
    assert chart["appVersion"] == project["version"]
