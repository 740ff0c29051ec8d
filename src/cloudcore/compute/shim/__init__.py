"""The shim: the process beside each instance, which outlives the service.

It is two processes. The service starts and kills `unshare` (util-linux). The child of `unshare`,
this program, is the first process of a process namespace and has the instance's processes below it.
When `unshare` is killed, the kernel ends all of them. Mounts, network namespaces and the loop
device belong to the shim and end with it; the driver removes control groups and files.

As each instance has a shim, it imports only the standard library, `metadata_server` and the shim's
modules in `cloudcore.nodes`.
"""
