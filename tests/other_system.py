"""torcheer where what only Unix or only Linux has is absent: run the parts named on the command line.

Hidden after torch is loaded, whose own needs are not ours; what stays is what Windows has.
"""

from __future__ import annotations

import mmap
import os
import runpy
import select
import signal
import socket
import sys
from pathlib import Path

import torch  # noqa: F401

for name in ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty"):
    sys.modules[name] = None  # type: ignore[assignment]
HIDDEN = {
    os: "memfd_create fork forkpty register_at_fork pread pwrite preadv pwritev posix_fadvise posix_fallocate "
    "O_DIRECTORY O_NOFOLLOW O_CLOEXEC O_NONBLOCK pipe2 uname geteuid getuid sched_getaffinity pidfd_open nice mkfifo "
    "setsid killpg getpgid fchmod fchdir WNOHANG",
    socket: "AF_UNIX send_fds recv_fds SCM_RIGHTS",
    signal: "SIGKILL SIGHUP SIGUSR1 SIGALRM SIGCHLD SIGPIPE pthread_sigmask sigtimedwait setitimer alarm",
    select: "poll epoll",
    mmap: "MAP_SHARED MAP_PRIVATE MAP_POPULATE PROT_READ PROT_WRITE",
}
for module, names in HIDDEN.items():
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)

sys.argv = ["version_smoke.py", *sys.argv[1:]]
runpy.run_path(str(Path(__file__).parents[1] / "benchmarks" / "version_smoke.py"), run_name="__main__")
