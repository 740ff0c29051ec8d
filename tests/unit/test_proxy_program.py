"""The program of the embedded proxy is light: there are many of it on a machine."""

from __future__ import annotations

import subprocess
import sys

LIST = """
import sys
import cloudcore.loadbalancer.proxy
for name in sys.modules:
    print(name)
"""


def test_it_imports_the_standard_library_alone() -> None:
    listed = subprocess.run(
        (sys.executable, "-I", "-S", "-c", f"import sys; sys.path += {sys.path!r}; {LIST}"),
        capture_output=True,
        check=True,
        text=True,
    ).stdout.split()
    assert "cloudcore.loadbalancer.proxy_relay" in listed
    others = {name for name in listed if name.partition(".")[0] not in sys.stdlib_module_names}
    assert {name for name in others if not name.startswith("cloudcore")} == {"__main__"} & others
    assert {name for name in others if name.startswith("cloudcore")} == {
        "cloudcore",
        "cloudcore.loadbalancer",
        "cloudcore.loadbalancer.proxy",
        "cloudcore.loadbalancer.proxy_heads",
        "cloudcore.loadbalancer.proxy_relay",
        "cloudcore.loadbalancer.proxy_targets",
    }
