"""The kernel and the families of the cloud; independent of the registry, by import and by word.

The modules here are what all rooms share: clock, errors, names and references of resources, key
pairs, threads, the interface of the command line, `family` (one value that says what a family
brings) and `ports` (what families ask of each other).

Kernel rooms, from below: `db`; `iam`, `jobs`, `serving`, `outbound`; `objects`; `web`; `metering`,
`quotas`; `resources`; `nodes`. Above them stand the families, which do not import each other. The
contract of the layers is in ``pyproject.toml``.
"""
