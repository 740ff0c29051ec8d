"""Instances that run images, and the pools that keep them running.

`pools`, `routes` and `rows` implement ``/v1/instance-pools``. On each machine, `reconciler`
compares the rows of instances with what runs; `rollout` decides from the rows what to start and to
stop, and `instance_runner` does it through a driver, `runc` or, without root, `bubblewrap`. Both
drivers start a `shim` process beside each instance, so instances outlive the service. `credentials`
and `metadata_server` provide an instance with the credentials of its role.
"""
