"""Machines of an install: which are there, and programs that run on one and outlive the service.

`rows` knows which machines run and what is placed on them, `fleet` that they have the same
settings, and `watcher` runs what one process of a machine does again and again. The rest keeps
programs: `detached_process` launches a process once for a folder, `shim` is the program beside it,
and `control_groups` and `seccomp` bound it. Shims import the standard library and `shim`,
`detached_process`, `output` and `relays` alone.
"""
