"""The shim: the process beside each instance, which outlives the service.

It is two processes. `unshare` (util-linux) is what the service knows and kills; its child, this
program, is the first process of a process namespace, with the instance's below it. When `unshare`
is killed, the kernel ends all of them. Mounts, network namespaces and the loop device are the
shim's own too, and end with it; groups and files are left to a driver.

It imports the standard library, `metadata_server` and what shims share in `cloudcore.nodes`, as
each instance has one.
"""
