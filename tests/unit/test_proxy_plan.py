"""A plan that a proxy could read as something else cannot be made."""

from __future__ import annotations

import pytest

from cloudcore.loadbalancer.driver import (
    BackendPlan,
    HealthPlan,
    ListenerPlan,
    PlanRefused,
    ProxyPlan,
    TargetPlan,
)

TARGET = TargetPlan("one", "192.0.2.1", 80)
BACKEND = BackendPlan("web", "http", HealthPlan(), (TARGET,))


@pytest.mark.parametrize(
    "path", ["", "health", "/a b", "/a\nb", '/"', "/#a", "/\\", "/é", "/{x}", "/a\x00", "/a\r"]
)
def test_a_health_path_holds_what_a_uri_may_hold(path: str) -> None:
    with pytest.raises(PlanRefused):
        HealthPlan("http", path)
    HealthPlan("http", "/a/b?c=%20&d='$x'")


@pytest.mark.parametrize(
    "address", [None, "", "host", "192.0.2.1:80", "192.0.2.01", "fe80::1%eth0", "2001:DB8::1"]
)
def test_a_target_has_an_address_in_its_usual_form(address: str | None) -> None:
    with pytest.raises(PlanRefused):
        TargetPlan("one", address, 80)


@pytest.mark.parametrize("socket", ["", "relative", "/a\0b"])
def test_a_path_of_a_socket_is_absolute(socket: str) -> None:
    with pytest.raises(PlanRefused):
        TargetPlan("one", socket=socket)


def test_a_target_has_one_place() -> None:
    with pytest.raises(PlanRefused):
        TargetPlan("one", "192.0.2.1", 80, "/a/b")
    with pytest.raises(PlanRefused):
        TargetPlan("one", "192.0.2.1", 0)


@pytest.mark.parametrize(
    "listener",
    [
        ListenerPlan(80, "tcp", "web"),
        ListenerPlan(80, "http", "other"),
        ListenerPlan(443, "http", "web"),
    ],
)
def test_a_listener_has_a_backend_of_its_protocol_and_a_port_of_its_own(
    listener: ListenerPlan,
) -> None:
    secure = ListenerPlan(443, "https", "web", "a.pem")
    with pytest.raises(PlanRefused):
        ProxyPlan("a", "192.0.2.9", (secure, listener), (BACKEND,))
    ProxyPlan("a", "192.0.2.9", (secure,), (BACKEND,))


@pytest.mark.parametrize("file", [None, "../a.pem", "a.pem ca-file x", "a.PEM", "a\n.pem"])
def test_https_names_the_file_of_its_certificate(file: str | None) -> None:
    with pytest.raises(PlanRefused):
        ListenerPlan(443, "https", "web", file)


def test_names_of_backends_and_ids_of_targets_are_distinct() -> None:
    with pytest.raises(PlanRefused):
        BackendPlan("web", "http", HealthPlan(), (TARGET, TARGET))
    with pytest.raises(PlanRefused):
        ProxyPlan("a", "192.0.2.9", (), (BACKEND, BACKEND))
    with pytest.raises(PlanRefused):
        ProxyPlan("../a", "192.0.2.9", (), ())
