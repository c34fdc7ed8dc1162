"""Takes from this process what reading does not need: the network, other files, other programs, most of memory.

What a system or a container forbids or lacks is left out: docs/security.md says which limits hold where.
"""

from __future__ import annotations

import ctypes
import errno
import platform
import resource
import sys
from typing import Final

MOST_MEMORY_BYTES: Final = 1 << 30  # of its own; what it maps of files does not count
_MOST_FILES: Final = 10_000  # shards of one model: each is mapped
_MOST_ANSWER_BYTES: Final = 2 << 30

# Every other call of the system fails with EPERM. A descriptor comes from the parent or not at all: nothing is opened.
_CALLS: Final = {
    "x86_64": (0xC000003E, 317, {
        "read": 0, "write": 1, "close": 3, "fstat": 5, "poll": 7, "lseek": 8, "mmap": 9, "mprotect": 10, "munmap": 11,
        "brk": 12, "rt_sigaction": 13, "rt_sigprocmask": 14, "rt_sigreturn": 15, "pread64": 17, "readv": 19,
        "writev": 20, "select": 23, "sched_yield": 24, "mremap": 25, "madvise": 28, "dup": 32, "nanosleep": 35,
        "setitimer": 38, "getpid": 39, "sendto": 44, "recvfrom": 45, "sendmsg": 46, "recvmsg": 47, "shutdown": 48,
        "exit": 60, "fcntl": 72, "ftruncate": 77, "getrusage": 98, "getppid": 110, "sigaltstack": 131, "gettid": 186,
        "futex": 202, "restart_syscall": 219, "clock_gettime": 228, "clock_nanosleep": 230, "exit_group": 231,
        "newfstatat": 262, "ppoll": 271, "set_robust_list": 273, "getrandom": 318, "memfd_create": 319, "rseq": 334,
    }),
    "aarch64": (0xC00000B7, 277, {
        "dup": 23, "fcntl": 25, "ftruncate": 46, "close": 57, "lseek": 62, "read": 63, "write": 64, "readv": 65,
        "writev": 66, "pread64": 67, "pselect6": 72, "ppoll": 73, "newfstatat": 79, "fstat": 80, "exit": 93,
        "exit_group": 94, "futex": 98, "set_robust_list": 99, "nanosleep": 101, "setitimer": 103, "clock_gettime": 113,
        "clock_nanosleep": 115, "sched_yield": 124, "restart_syscall": 128, "sigaltstack": 132, "rt_sigaction": 134,
        "rt_sigprocmask": 135, "rt_sigreturn": 139, "getrusage": 165, "getpid": 172, "getppid": 173, "gettid": 178,
        "sendto": 206, "recvfrom": 207, "shutdown": 210, "sendmsg": 211, "recvmsg": 212, "brk": 214, "munmap": 215,
        "mremap": 216, "mmap": 222, "mprotect": 226, "madvise": 233, "getrandom": 278, "memfd_create": 279, "rseq": 293,
    }),
}  # fmt: skip
_LOAD, _JUMP_IF_EQUAL, _RETURN = 0x20, 0x15, 0x06  # of the filter's machine
_NUMBER_AT, _ARCHITECTURE_AT = 0, 4
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000 | errno.EPERM
_NO_NEW_PRIVILEGES, _FILTER, _ALL_THREADS = 38, 1, 1


class _Step(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint16), ("yes", ctypes.c_uint8), ("no", ctypes.c_uint8), ("k", ctypes.c_uint32)]


class _Filter(ctypes.Structure):
    _fields_ = [("count", ctypes.c_ushort), ("steps", ctypes.POINTER(_Step))]


def limit_this_process() -> list[str]:
    """Set the limits, for ever; return those that hold: "memory", "calls"."""
    held = ["memory"] if _limit_resources() else []
    return [*held, "calls"] if _limit_calls() else held


def _limit_resources() -> bool:
    wanted = {
        resource.RLIMIT_CORE: 0, resource.RLIMIT_NOFILE: _MOST_FILES, resource.RLIMIT_FSIZE: _MOST_ANSWER_BYTES,
        resource.RLIMIT_DATA: MOST_MEMORY_BYTES,
    }  # fmt: skip
    for which, most in wanted.items():
        try:
            hard = resource.getrlimit(which)[1]
            most = most if hard == resource.RLIM_INFINITY else min(most, hard)
            resource.setrlimit(which, (most, most))
        except (OSError, ValueError):
            return False
    return sys.platform == "linux"  # elsewhere the limit of memory can be set, and does nothing


def _limit_calls() -> bool:
    """Allow the calls of `_CALLS` alone, in all threads of this process."""
    known = _CALLS.get(platform.machine()) if sys.platform == "linux" else None
    if known is None or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    architecture, seccomp, calls = known
    numbers = sorted(calls.values())
    steps = [
        (_LOAD, 0, 0, _ARCHITECTURE_AT), (_JUMP_IF_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _FAIL),
        (_LOAD, 0, 0, _NUMBER_AT),
        *((_JUMP_IF_EQUAL, len(numbers) - place, 0, number) for place, number in enumerate(numbers)),
        (_RETURN, 0, 0, _FAIL), (_RETURN, 0, 0, _ALLOW),
    ]  # fmt: skip
    program = _Filter(len(steps), (_Step * len(steps))(*(_Step(*step) for step in steps)))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0):
        return False
    return bool(libc.syscall(seccomp, _FILTER, _ALL_THREADS, ctypes.byref(program)) == 0)
