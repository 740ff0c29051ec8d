"""Instances that run images, and the pools that keep them running.

`pools`, `routes`, `rows`: ``/v1/instance-pools``.
`reconciler`: makes the instances of each machine match their rows.
`rollout`: decides from the rows which instances to start and to stop.
`instance_runner`: starts and stops instances through a driver, `runc` or, without root,
    `bubblewrap`.
`shim`: a process beside each instance, started by both drivers, so that instances outlive the
    service.
`credentials`, `metadata_server`: provide an instance with the credentials of its role.
"""
