"""Machines of an install, and programs that run on a machine and outlive the service.

`rows` stores which machines run and what is placed on them, `fleet` checks that they have the same
settings, and `watcher` runs a machine's recurring tasks in one of its processes. The other modules
run programs: `detached_process` starts a process once for a folder, `shim` is the process beside a
program, `shim_driver` is the service's side of it, and `control_groups` and `seccomp` confine it.
Shims import only the standard library and `shim`, `detached_process`, `output` and `relays`.
"""
