"""Instances that run images, and the pools that keep them running.

`pools`, `routes` and `rows` are ``/v1/instance-pools``. On each machine, `reconciler` compares the
rows of instances with what runs; `rollout` decides from the rows what to start and to stop, and
`instance_runner` does so by a driver, `runc` or, without root, `bubblewrap`. Both drivers start a
process of `shim` beside each instance, so instances outlive the service. `credentials` and
`metadata_server` give an instance the credentials of its role.
"""
