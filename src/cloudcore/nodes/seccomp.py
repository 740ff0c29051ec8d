"""The system calls that a confined program may make: all others fail with ENOSYS.

The list is the one that container engines use for programs without capabilities, on 64-bit
machines, but shorter: it has no calls that create or join namespaces, mount, trace, store keys, or
read another process's memory, and neither `io_uring` nor `userfaultfd`. New calls of a kernel are
refused until they are listed.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any, Final

_ALLOWED: Final = """
    accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chmod chown
    clock_getres clock_gettime clock_nanosleep close close_range connect copy_file_range creat dup
    dup2 dup3 epoll_create epoll_create1 epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd
    eventfd2 execve execveat exit exit_group faccessat faccessat2 fadvise64 fallocate fchdir fchmod
    fchmodat fchmodat2 fchown fchownat fcntl fdatasync fgetxattr flistxattr flock fork fremovexattr
    fsetxattr fstat fstatfs fsync ftruncate futex futex_requeue futex_wait futex_waitv futex_wake
    futimesat get_robust_list getcpu getcwd getdents getdents64 getegid geteuid getgid getgroups
    getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom getresgid getresuid
    getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid getxattr
    inotify_add_watch inotify_init inotify_init1 inotify_rm_watch io_cancel io_destroy io_getevents
    io_setup io_submit ioctl ioprio_get ioprio_set kill landlock_add_rule landlock_create_ruleset
    landlock_restrict_self lchown lgetxattr link linkat listen listxattr llistxattr lremovexattr
    lseek lsetxattr lstat madvise membarrier memfd_create mincore mkdir mkdirat mknod mknodat mlock
    mlock2 mlockall mmap mprotect mq_getsetattr mq_notify mq_open mq_timedreceive mq_timedsend
    mq_unlink mremap msgctl msgget msgrcv msgsnd msync munlock munlockall munmap nanosleep
    newfstatat open openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc
    pkey_free pkey_mprotect poll ppoll prctl pread64 preadv preadv2 prlimit64 pselect6 pwrite64
    pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg removexattr
    rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending rt_sigprocmask
    rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo
    sched_get_priority_max sched_get_priority_min sched_getaffinity sched_getattr sched_getparam
    sched_getscheduler sched_rr_get_interval sched_setaffinity sched_setattr sched_setparam
    sched_setscheduler sched_yield seccomp select semctl semget semop semtimedop sendfile sendmmsg
    sendmsg sendto set_robust_list set_tid_address setfsgid setfsuid setgid setgroups setitimer
    setpgid setpriority setregid setresgid setresuid setreuid setrlimit setsid setsockopt setuid
    setxattr shmat shmctl shmdt shmget shutdown sigaltstack signalfd signalfd4 socketpair splice
    stat statfs statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time
    timer_create timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create
    timerfd_gettime timerfd_settime times tkill truncate umask uname unlink unlinkat utime utimensat
    utimes vfork vmsplice wait4 waitid write writev
"""
_NAMESPACES: Final = 0x7E02_0000
"""The flags of `clone` that make a namespace (CLONE_NEW*)."""
_FAMILIES: Final = (1, 2, 10, 16)
"""Allowed families of sockets: AF_UNIX, AF_INET, AF_INET6, and AF_NETLINK, which lists
interfaces."""
_PERSONALITIES: Final = (0, 0x8, 0x2_0000, 0x2_0008, 0xFFFF_FFFF)
"""Allowed arguments: Linux, its 32-bit address space, and the query of the present one
(personality(2))."""
_ENOSYS: Final = 38
_Rule = tuple[str, tuple[tuple[int, str, int, int], ...]]
"""A call and the conditions on its arguments: number, operator, value or mask, value under the
mask."""
_RULES: Final[tuple[_Rule, ...]] = (
    *((name, ()) for name in _ALLOWED.split()),
    ("clone", ((0, "SCMP_CMP_MASKED_EQ", _NAMESPACES, 0),)),
    # `clone3` has its flags in memory: without it, libraries use `clone`.
    *(("personality", ((0, "SCMP_CMP_EQ", value, 0),)) for value in _PERSONALITIES),
    *(("socket", ((0, "SCMP_CMP_EQ", family, 0),)) for family in _FAMILIES),
)
_OPERATORS: Final = {"SCMP_CMP_EQ": 4, "SCMP_CMP_MASKED_EQ": 7}
"""The operators' numbers in libseccomp."""


def runtime_profile() -> dict[str, Any]:
    """Return the filter in the form for container runtimes (runtime-spec, "Seccomp")."""
    return {
        "defaultAction": "SCMP_ACT_ERRNO",
        "defaultErrnoRet": _ENOSYS,
        "syscalls": [
            {
                "names": [name],
                "action": "SCMP_ACT_ALLOW",
                "args": [
                    {"index": number, "op": operator, "value": value, "valueTwo": second}
                    for number, operator, value, second in arguments
                ],
            }
            for name, arguments in _RULES
        ],
    }


class _Argument(ctypes.Structure):
    """The C type `struct scmp_arg_cmp` of libseccomp."""

    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    )


def write_program(path: Path) -> None:
    """Compile the filter with libseccomp, and write it in the kernel's form (BPF).

    Raise `OSError` if the library is missing or fails.
    """
    library = ctypes.CDLL("libseccomp.so.2")
    library.seccomp_init.restype = ctypes.c_void_p
    allow, refuse = 0x7FFF_0000, 0x0005_0000 | _ENOSYS
    context = ctypes.c_void_p(library.seccomp_init(ctypes.c_uint32(refuse)))
    try:
        for name, arguments in _RULES:
            number = library.seccomp_syscall_resolve_name(name.encode())
            if number < 0:
                continue  # not of this architecture, or newer than the library
            compared = (_Argument * len(arguments))(
                *(_Argument(which, _OPERATORS[how], a, b) for which, how, a, b in arguments)
            )
            _checked(
                library.seccomp_rule_add_array(
                    context, ctypes.c_uint32(allow), number, len(arguments), compared
                )
            )
        with path.open("wb") as file:
            _checked(library.seccomp_export_bpf(context, file.fileno()))
    finally:
        library.seccomp_release(context)


def _checked(result: int) -> None:
    if result != 0:
        raise OSError(-result, f"libseccomp: {os.strerror(-result)}")
