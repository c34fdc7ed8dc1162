"""A folder mounted again through FUSE, with the faults of network storage.

`faulty_storage.py FOLDER MOUNT FAULTS LATE_SECS`. Files in FAULTS switch them on: `nolocks` (no process can lock),
`quota` (the bytes that may still be written), `stale` (reads and writes of open files fail with ESTALE, as after the
server has lost them). What other mounts of the folder change is seen up to LATE_SECS later: the kernel keeps names,
also missing ones, and sizes for so long, as an NFS client does.
"""

import errno
import os
import sys
import threading
from pathlib import Path

import mfusepy


class FaultyStorage(mfusepy.Operations):
    """Every call goes to the folder behind it, unless a fault is on."""

    use_ns = True

    def __init__(self, root: str, faults: str) -> None:
        self.root, self.faults, self.writing = root, Path(faults), threading.Lock()

    def _at(self, path: str) -> str:
        return self.root + path

    def _check_stale(self) -> None:
        if (self.faults / "stale").exists():
            raise mfusepy.FuseOSError(errno.ESTALE)

    def getattr(self, path, fh=None):
        status = os.lstat(self._at(path))
        names = ("st_atime_ns", "st_ctime_ns", "st_gid", "st_mode", "st_mtime_ns", "st_nlink", "st_size", "st_uid")
        return {name.removesuffix("_ns"): getattr(status, name) for name in names} | {"st_ino": status.st_ino}

    def readdir(self, path, fh):
        return [".", "..", *os.listdir(self._at(path))]

    def open(self, path, flags):
        return os.open(self._at(path), flags)

    def create(self, path, mode, fi=None):
        return os.open(self._at(path), os.O_RDWR | os.O_CREAT, mode)

    def read(self, path, size, offset, fh):
        self._check_stale()
        return os.pread(fh, size, offset)

    def write(self, path, data, offset, fh):
        self._check_stale()
        quota = self.faults / "quota"
        with self.writing:
            if quota.exists():
                left = int(quota.read_text())
                if left < len(data):
                    raise mfusepy.FuseOSError(errno.EDQUOT)
                quota.write_text(str(left - len(data)))
            return os.pwrite(fh, data, offset)

    def truncate(self, path, length, fh=None):
        os.truncate(self._at(path), length)

    def lock(self, path, fh, cmd, lock):
        raise mfusepy.FuseOSError(errno.ENOLCK)

    def fsync(self, path, datasync, fh):
        self._check_stale()
        return os.fsync(fh)

    def flush(self, path, fh):
        return 0

    def release(self, path, fh):
        os.close(fh)
        return 0

    def rename(self, old, new):
        os.rename(self._at(old), self._at(new))

    def link(self, target, source):
        os.link(self._at(source), self._at(target))

    def mkdir(self, path, mode):
        os.mkdir(self._at(path), mode)

    def rmdir(self, path):
        os.rmdir(self._at(path))

    def unlink(self, path):
        os.unlink(self._at(path))

    def chmod(self, path, mode):
        os.chmod(self._at(path), mode)

    def utimens(self, path, times=None):
        os.utime(self._at(path), ns=times)

    def statfs(self, path):
        status = os.statvfs(self._at(path))
        return {
            name: getattr(status, name)
            for name in ("f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_files", "f_frsize")
        }


if __name__ == "__main__":
    folder, mount, faults, late_secs = sys.argv[1:]
    operations = FaultyStorage(folder, faults)
    if not (Path(faults) / "nolocks").exists():
        del FaultyStorage.lock  # then the kernel keeps the locks of this mount
    times = {name: float(late_secs) for name in ("entry_timeout", "negative_timeout", "attr_timeout")}
    mfusepy.FUSE(operations, mount, foreground=True, nothreads=False, default_permissions=True, **times)
