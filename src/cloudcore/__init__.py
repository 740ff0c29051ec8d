"""The kernel and the families of the cloud, which are independent of the registry.

Kernel packages, from the lowest layer: `db`; `iam`, `jobs`, `serving`, `outbound`; `objects`;
`web`; `metering`, `quotas`; `resources`; `nodes`. Above them stand the families, which do not
import each other (see the contract in ``pyproject.toml``). All of them share the modules here.
"""
