"""Rules and routes of the network as commands change them: what was named, and nothing else."""

from __future__ import annotations

from typing import Any, Final
from unittest.mock import Mock

import pytest

from cloudcore.network.commands import COMMANDS

GROUP: Final = "crn:network:local:0198c2f0-1111-7222-8333-444455556666:security-group/web"
HTTPS: Final = {"direction": "inbound", "protocol": "tcp", "ports": "443", "source": "::/0"}
WEB: Final = {"direction": "inbound", "protocol": "tcp", "ports": "80", "source": GROUP}
OUT: Final = {"direction": "outbound", "protocol": "any", "destination": "::/0"}
TO_ALL: Final = {"destination": "::/0", "target": "internet-gateway/a"}
TO_ONE: Final = {"destination": "2001:db8::/48", "target": "internet-gateway/a"}


def changed(verb: str, record: dict[str, Any], **values: str) -> tuple[object, Any]:
    """Run an act on a record; return what the act returns, and what is sent, or None."""
    run: Any = Mock(values=values, record=record, path="/v1/things/a")
    run.client.call.return_value = {"thing": record}
    (act,) = (act for noun in COMMANDS for act in noun.commands if act.verb == verb)
    assert act.run is not None
    returned = act.run(run)
    if not run.client.call.called:
        return returned, None
    run.client.call.assert_called_once()
    method, path, sent = run.client.call.call_args.args
    assert (method, path) == ("PATCH", "/v1/things/a")
    return returned, sent


@pytest.mark.parametrize(
    ("values", "left"),
    [
        ({"direction": "inbound"}, [OUT]),
        ({"direction": "inbound", "ports": "443"}, [WEB, OUT]),
        ({"source": "web"}, [HTTPS, OUT]),
        ({"source": GROUP}, [HTTPS, OUT]),
        ({"source": "eb"}, [HTTPS, WEB, OUT]),
        ({"source": "::/0", "direction": "outbound"}, [HTTPS, WEB, OUT]),
    ],
)
def test_only_rules_with_all_that_is_named_are_revoked(
    values: dict[str, str], left: list[dict[str, str]]
) -> None:
    returned, sent = changed("revoke", {"rules": [HTTPS, WEB, OUT]}, **values)
    assert (returned, sent) == (True, {"rules": left})


def test_to_revoke_no_rule_in_particular_revokes_none() -> None:
    assert changed("revoke", {"rules": [HTTPS, WEB, OUT]}) == (False, None)


def test_a_rule_is_added_and_a_route_replaces_that_of_its_destination() -> None:
    assert changed("allow", {"rules": [HTTPS]}, **OUT)[1] == {"rules": [HTTPS, OUT]}
    routes, other = {"routes": [TO_ALL, TO_ONE]}, {**TO_ALL, "target": "internet-gateway/b"}
    assert changed("add-route", routes, **other)[1] == {"routes": [TO_ONE, other]}
    sent = changed("remove-route", routes, destination=TO_ALL["destination"])[1]
    assert sent == {"routes": [TO_ONE]}
