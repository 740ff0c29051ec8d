"""Instances that run images, and the pools that keep them running.

`pools`, `routes` and `rows` are ``/v1/instance-pools``. On a machine, `reconciling` compares the
rows of instances with what runs, `rolling` decides from rows alone what to start and end, and
`machine` does it by a driver: `runc`, or `bubblewrap` without root. Both start the program in
`shim` beside each instance, so instances outlive the service. `credentials` and `metadata_server`
give an instance the credentials of its role.
"""
