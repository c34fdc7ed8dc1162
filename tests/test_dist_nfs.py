"""NFS itself, client and server of a Linux kernel that runs as a process: `nfs_checks.py`, on `nfs_machine.sh`."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from children import RUN_SECS

PROGRAMS = {
    "linux.uml": "user-mode-linux",
    "modprobe": "kmod",
    "rpc.nfsd": "nfs-kernel-server",
    "mount.nfs4": "nfs-common",
}
PATH = f"{os.environ['PATH']}:/usr/sbin:/sbin"
MISSING = [package for program, package in PROGRAMS.items() if shutil.which(program, path=PATH) is None]
pytestmark = [
    pytest.mark.dist,
    pytest.mark.skipif(bool(MISSING), reason=f"no kernel with NFS: apt-get install {' '.join(MISSING)}"),
    pytest.mark.skipif(os.getuid() != 0, reason="its root is this machine's disk, which only root reads as a whole"),
]
HERE = Path(__file__).parent


def test_runs_locks_archives_and_extractions_hold_on_a_kernels_nfs(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    checks = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-x", "-v", "--basetemp=/run/tmp/pytest"]
    command = f"cd {HERE.parent} && {shlex.join(checks)} {HERE / 'nfs_checks.py'}"
    settings = {
        "mem": "4G", "root": "/dev/root", "rootfstype": "hostfs", "rootflags": "/", "init": HERE / "nfs_machine.sh",
        "con": "null", "NFS_OUT": out, "NFS_COMMAND": f'"{command}"',
    }  # fmt: skip
    with tempfile.TemporaryDirectory(prefix="uml") as short:  # a socket's path is
        words = ["linux.uml", "ro", "quiet", f"uml_dir={short}", *(f"{key}={value}" for key, value in settings.items())]
        with subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True
        ) as machine:
            try:
                machine.wait(3 * RUN_SECS)
            finally:
                if machine.poll() is None:
                    os.killpg(machine.pid, signal.SIGKILL)
    said = (out / "said").read_text()
    assert (out / "status").exists() and (out / "status").read_text() == "0\n", said
