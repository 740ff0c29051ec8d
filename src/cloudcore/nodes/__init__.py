"""Machines of an install, and programs that run on a machine and outlive the service.

Machines:
- `rows` stores which machines run, and the resources that are placed on them.
- `fleet` checks that all machines have the same settings.
- `watcher` runs a machine's recurring tasks in one of its processes.

Programs:
- `detached_process` starts a process once for a folder.
- `shim` is the process beside a program, `shim_driver` the service's side of it.
- `control_groups` and `seccomp` confine a program.

Shims import only the standard library and `shim`, `detached_process`, `output` and `relays`.
"""
