"""Which addresses of the operator's ranges a load balancer may ask for."""

from __future__ import annotations

from ipaddress import ip_network

import pytest

from cloudcore.errors import InvalidInput
from cloudcore.loadbalancer.balancers import check_vip

RANGES = tuple(
    map(ip_network, ("192.0.2.0/29", "198.51.100.4/31", "203.0.113.9/32", "2001:db8::/64"))
)


@pytest.mark.parametrize(
    "vip",
    [
        *("192.0.2.1", "192.0.2.6", "198.51.100.4", "198.51.100.5", "203.0.113.9"),
        *("2001:db8::1", "2001:db8::ffff:ffff:ffff:ffff", ""),
    ],
)
def test_one_that_a_host_can_have_is_taken(vip: str) -> None:
    check_vip(vip, RANGES)


@pytest.mark.parametrize("vip", ["192.0.2.0", "192.0.2.7", "192.0.2.8", "2001:db8::"])
def test_one_that_no_host_can_have_is_refused(vip: str) -> None:
    """Those of the network itself and of all its hosts, and of any of its routers."""
    with pytest.raises(InvalidInput) as refused:
        check_vip(vip, RANGES)
    assert refused.value.params == {"field": "vip", "reason": "out_of_range"}
