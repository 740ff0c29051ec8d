"""Prometheus scrapes a registry, evaluates the alerts, and answers what the dashboard asks."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from tests.clients.programs import daemon
from tests.databases import ROOT
from tests.live import LiveRegistry, start_registry
from tests.postgresql import free_port
from tests.tools import require_tool
from tests.waiting import until

pytestmark = [pytest.mark.client("prometheus"), pytest.mark.timeout(120)]

DASHBOARD: Final = ROOT / "deploy" / "grafana" / "entrepot.json"
CONFIGURATION: Final = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: entrepot
    static_configs: [{{targets: ["{target}"]}}]
"""
SHOWN_AT_ONCE: Final = (
    "entrepot_measured",
    "entrepot_data_size_bytes",
    "entrepot_disk_free_bytes",
    "entrepot_database_size_bytes",
    "entrepot_quota_refusals_total",
    "entrepot_http_requests_total",
)


class Prometheus:
    """A server that scrapes one registry each second."""

    def __init__(self, address: str) -> None:
        self.api = httpx.Client(base_url=f"http://{address}", timeout=60)

    def is_ready(self) -> bool:
        try:
            return self.api.get("/-/ready").status_code == 200
        except httpx.TransportError:
            return False

    def ask(self, expression: str) -> list[Any]:
        """Return the series that an expression has now."""
        answer = self.api.get("/api/v1/query", params={"query": expression})
        assert answer.status_code == 200, (expression, answer.text)
        return list(answer.json()["data"]["result"])

    def rules(self) -> list[dict[str, Any]]:
        """Return the rules with the outcome of their last evaluation."""
        groups = self.api.get("/api/v1/rules").json()["data"]["groups"]
        return [rule for group in groups for rule in group["rules"]]


@pytest.fixture
def scraped(workspace: Path) -> Iterator[tuple[LiveRegistry, str]]:
    """Return a registry, and the address of its metrics."""
    address = f"127.0.0.1:{free_port()}"
    registry = start_registry(workspace / "data", "--metrics", address)
    yield registry, address
    assert registry.stop() == 0


def test_prometheus_scrapes_and_evaluates(
    scraped: tuple[LiveRegistry, str], workspace: Path
) -> None:
    registry, target = scraped
    program = require_tool("prometheus")
    rules = ROOT / "deploy" / "prometheus" / "alerts.yml"
    (workspace / "prometheus.yml").write_text(CONFIGURATION.format(rules=rules, target=target))
    httpx.get(f"{registry.url}/v2/", timeout=30)
    address = f"127.0.0.1:{free_port()}"
    prometheus = Prometheus(address)
    words = (
        f"--config.file={workspace / 'prometheus.yml'}",
        f"--storage.tsdb.path={workspace / 'tsdb'}",
        f"--web.listen-address={address}",
    )
    with (
        prometheus.api,
        daemon(program, *words, log=workspace / "log", ready=prometheus.is_ready),
    ):
        until(lambda: all(prometheus.ask(name) for name in SHOWN_AT_ONCE))
        # Not at once: a scrape of a busy machine may take longer than the second it has.
        until(lambda: prometheus.ask('up{job="entrepot"} == 1'))
        until(lambda: all(rule["health"] != "unknown" for rule in prometheus.rules()))
        evaluated = prometheus.rules()
        assert len(evaluated) > 10
        assert {(rule["health"], rule.get("lastError")) for rule in evaluated} == {("ok", None)}
        assert not [rule["name"] for rule in evaluated if rule["state"] == "firing"]
        for expression in asked_by_the_dashboard():
            prometheus.ask(expression)


def asked_by_the_dashboard() -> list[str]:
    """Return the expressions of all panels, as Grafana sends them."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    written = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [
        expression.replace("$__rate_interval", "1m").replace("$instance", ".*")
        for expression in written
    ]
