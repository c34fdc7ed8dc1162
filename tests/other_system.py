"""torcheer on a system that is not Linux: run the parts named on the command line, after "windows" or "macos".

What only Unix or only Linux has is hidden after torch is loaded, whose own needs are not ours. For Windows, files
behave as they do there, too: what is open or mapped can be neither removed nor replaced, a rename replaces nothing, a
folder replaces no folder and cannot be opened, some characters stand in no name, `os.open` is for text unless told.
"""

from __future__ import annotations

import builtins
import errno
import io
import mmap
import os
import re
import select
import shutil
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

LINUX_ONLY = {
    os: "memfd_create posix_fadvise posix_fallocate pipe2 sched_getaffinity pidfd_open fdatasync MFD_CLOEXEC",
    mmap: "MAP_POPULATE",
    select: "epoll",
    signal: "sigtimedwait sigwaitinfo",
}
UNIX_ONLY = {
    os: "fork forkpty register_at_fork pread pwrite preadv pwritev O_DIRECTORY O_NOFOLLOW O_CLOEXEC O_NONBLOCK uname "
    "geteuid getuid getgid nice mkfifo setsid killpg getpgid fchmod fchown fchdir chown WNOHANG sysconf "
    "getloadavg set_blocking",
    socket: "AF_UNIX send_fds recv_fds SCM_RIGHTS CMSG_SPACE MSG_DONTWAIT",
    signal: "SIGKILL SIGHUP SIGUSR1 SIGUSR2 SIGALRM SIGCHLD SIGPIPE SIGQUIT SIG_BLOCK pthread_sigmask setitimer alarm",
    select: "poll POLLIN POLLOUT POLLHUP POLLERR",
    mmap: "MAP_SHARED MAP_PRIVATE PROT_READ PROT_WRITE",
}
UNIX_MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog")
FORBIDDEN = re.compile(r'[<>:"|?*\\\x00-\x1f]|[ .]$|^(con|prn|aux|nul|com\d|lpt\d)(\.|$)', re.IGNORECASE)


def hide(names: dict[Any, str]) -> None:
    for module, words in names.items():
        for name in words.split():
            if hasattr(module, name):
                delattr(module, name)


def hide_proc() -> None:
    """Let nothing be found below /proc, /sys and /dev/shm, nor be opened there."""
    for module, names in {os: "stat lstat open readlink scandir listdir", builtins: "open", io: "open"}.items():
        for name in names.split():
            setattr(module, name, without_proc(getattr(module, name)))


def without_proc(call: Callable[..., Any]) -> Callable[..., Any]:
    def called(path: Any = ".", *args: Any, **options: Any) -> Any:
        if is_ours() and isinstance(path, str | os.PathLike) and re.match(r"/(proc|sys|dev/shm)\b", str(path)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return call(path, *args, **options)

    return called


def is_ours() -> bool:
    """Whether torcheer calls, itself or through the standard library; the rest of the process is Linux's."""
    frame = sys._getframe(2)
    while frame is not None and not frame.f_globals.get("__name__", "").startswith(("torch.", "numpy.")):
        if frame.f_globals.get("__name__", "").startswith("torcheer."):
            return True
        frame = frame.f_back  # type: ignore[assignment]
    return False


# -- files as Windows has them ----------------------------------------------------------------------------------------

_readlink, _listdir, _open = os.readlink, os.listdir, open


def held(path: Any) -> str:
    """The file at a path, or below it, that this process has open or mapped; "" for none."""
    wanted = os.path.realpath(path)
    names = [link for number in _listdir("/proc/self/fd") if (link := target(number))]
    with _open("/proc/self/maps") as maps:
        names += [line.split(None, 5)[5].strip() for line in maps if line.count("/")]
    return next((name for name in names if name == wanted or name.startswith(f"{wanted}/")), "")


def target(number: str) -> str:
    try:
        return _readlink(f"/proc/self/fd/{number}")
    except OSError:
        return ""


def refuse(number: int, path: Any, why: str) -> None:
    raise PermissionError(number, f"{os.strerror(number)} (as on Windows: {why})", str(path))


def check_names(*paths: Any) -> None:
    for path in paths:
        if isinstance(path, str | os.PathLike) and is_ours():
            for part in Path(path).parts[1 if Path(path).is_absolute() else 0 :]:
                if part not in (".", "..") and FORBIDDEN.search(part):
                    raise OSError(errno.EINVAL, f"Invalid argument (as on Windows: the name {part!r})", str(path))


def behave_as_windows() -> None:
    os.O_BINARY = 0x8000  # type: ignore[attr-defined]
    socket.socketpair = socket_pair  # type: ignore[assignment]
    shutil._use_fd_functions = False  # type: ignore[attr-defined]
    real = {name: getattr(os, name) for name in "rename replace unlink remove open mkdir link rmdir".split()}
    opened = builtins.open

    def rename(old: Any, new: Any, **options: Any) -> None:
        check_names(new)
        if is_ours() and os.path.lexists(new) and not os.path.samefile(old, new):
            raise FileExistsError(errno.EEXIST, "File exists (as on Windows)", str(new))
        move("rename", old, new, options)

    def replace(old: Any, new: Any, **options: Any) -> None:
        check_names(new)
        if is_ours() and os.path.isdir(new):
            refuse(errno.EACCES, new, "a folder is there")
        move("replace", old, new, options)

    def move(name: str, old: Any, new: Any, options: dict[str, Any]) -> None:
        for path in (old, new) if is_ours() else ():
            if os.path.exists(path) and (name_of := held(path)):
                refuse(errno.EACCES, path, f"{name_of} is open")
        real[name](old, new, **options)

    def removing(name: str) -> Callable[..., None]:
        def remove(path: Any, **options: Any) -> None:
            if is_ours() and os.path.exists(path) and (name_of := held(path)):
                refuse(errno.EACCES, path, f"{name_of} is open")
            real[name](path, **options)

        return remove

    def open_fd(path: Any, flags: int, *args: Any, **options: Any) -> int:
        check_names(path)
        if sys._getframe(1).f_globals.get("__name__", "").startswith("torcheer."):
            if os.path.isdir(path):
                refuse(errno.EACCES, path, "a folder")
            assert flags & os.O_BINARY, f"os.open({str(path)!r}) would read and write text on Windows"  # type: ignore[attr-defined]
        return real["open"](path, flags & ~0x8000, *args, **options)

    def open_file(file: Any, *args: Any, **options: Any) -> Any:
        check_names(file)
        return opened(file, *args, **options)

    def make_folder(path: Any, *args: Any, **options: Any) -> None:
        check_names(path)
        real["mkdir"](path, *args, **options)

    os.rename, os.replace, os.open, os.mkdir = rename, replace, open_fd, make_folder
    os.unlink, os.remove, os.rmdir = removing("unlink"), removing("remove"), removing("rmdir")
    builtins.open = io.open = open_file


def socket_pair(*_: Any) -> tuple[socket.socket, socket.socket]:
    """Two connected sockets, as Python makes them where there are no Unix ones."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        first = socket.create_connection(server.getsockname())
        return first, server.accept()[0]


def become(system: str) -> None:
    hide(LINUX_ONLY)
    if system == "windows":
        for name in UNIX_MODULES:
            sys.modules[name] = None  # type: ignore[assignment]
        hide(UNIX_ONLY)
        behave_as_windows()
    hide_proc()


# -- what runs there, besides the parts of `make test-versions` -------------------------------------------------------


def files(folder: Path) -> str:
    """A history is replaced; rows are read in blocks; a layer's strange name stands in no file's."""
    import torcheer as tl

    layers = torch.nn.ModuleDict({"a:b?": torch.nn.Linear(4, 4), "nul": torch.nn.ReLU()})

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = layers

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.layers["nul"](self.layers["a:b?"](x))  # type: ignore[no-any-return]

    model, data = Net(), torch.rand(20, 4)
    for _ in range(2):
        history = tl.log_forward_pass(model, data)
        history.save(folder / "replaced", overwrite=True)
        assert tl.load(folder / "replaced")["linear_1"].tensor_contents is not None
    found = tl.extract(model, data, layers="all", to=folder / "rows", batch_size=4)
    rows = list(found.stream(batch_size=5))
    return f"{len(rows)} batches of rows"


COMMANDS = """
new regression .
train config.yaml --plain epochs=1
train config.yaml --plain epochs=2
evaluate run
export run weights.safetensors
draw config.yaml
draw config.yaml --out net.svg
draw config.yaml --out net.svg
report run
report run
demo digits train.epochs=1
"""


def commands(folder: Path) -> str:
    """The commands that need one process."""
    from torcheer.cli import main

    os.chdir(folder)
    for command in COMMANDS.strip().splitlines():
        assert main(command.split()) == 0, command
    return "all of them"


def refused(folder: Path) -> str:
    """What needs more says so in one sentence, and nothing has begun."""
    from torcheer.cli import main

    os.chdir(folder)
    assert main(["new", "regression", "other"]) == 0
    os.chdir("other")
    for command in ("train config.yaml --nproc 2", "train config.yaml --studio", "sweep config.yaml seed=1,2"):
        assert main(command.split()) == 1, command
    return f"folders: {', '.join(sorted(path.name for path in Path().iterdir() if path.is_dir()))}"


if __name__ == "__main__":
    become(sys.argv.pop(1))
    sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
    import version_smoke

    version_smoke.PARTS |= {part.__name__: part for part in (files, commands, refused)}
    sys.exit(version_smoke.main())
