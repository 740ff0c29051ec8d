"""The keeper: the process beside each instance, which outlives the service.

It has two process ids' worth of parts. `unshare` (util-linux) is what the service knows and kills;
its child, this program, is the first process of a process namespace, and the instance's are below
it. So whoever ends the first ends all of them: the kernel does it. Mounts, network namespaces and
the loop device are the keeper's own too, and end with it; groups and files are left to a driver.

It imports the standard library and `metadata_server` alone, as each instance has one.
"""
