"""One open directory: everything in it is reached relative to its handle, and no symbolic link is ever followed.

    Folder.top("/work") ─▶ .child("src") ─▶ .look("a.py") .open("a.py") .replace("a.py", b"...") .unlink("a.py")

A handle stays with its directory, even if the directory is renamed or replaced by a link. Without such handles
(Windows), paths take their place, and each step first looks for a link.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
from typing import Literal, Self

EntryKind = Literal["file", "directory", "symlink", "FIFO", "socket", "device"]

HAS_HANDLES = os.scandir in os.supports_fd and {os.open, os.stat, os.mkdir, os.unlink, os.rename} <= os.supports_dir_fd
WALK = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0)
"""To pass through a directory, where possible also one that may be searched and not read."""
FLAGS = ("O_NOFOLLOW", "O_CLOEXEC", "O_NOCTTY", "O_NONBLOCK", "O_BINARY")  # nonblocking: a FIFO must not hang us
SAFE = sum(getattr(os, flag, 0) for flag in FLAGS)  # each is one bit
BAD_ON_WINDOWS = re.compile(r'[:*?"<>|\x00-\x1f]|[. ]$|^(con|prn|aux|nul|com\d|lpt\d)\s*(\.|$)', re.IGNORECASE)
"""Names that Windows takes for a device, a stream of another file, or the folder above."""
KINDS: dict[int, EntryKind] = {
    stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFIFO: "FIFO", stat.S_IFSOCK: "socket",
}  # fmt: skip
PRIVATE = re.compile(r"/proc/\d+/(task/\d+/)?(environ|mem|auxv)|/proc/k(core|msg)")
"""Files with keys of this program and of others."""


def kind_of(status: os.stat_result) -> EntryKind:
    if stat.S_ISLNK(status.st_mode) or getattr(status, "st_reparse_tag", 0) == 0xA0000003:  # a junction of Windows
        return "symlink"
    return KINDS.get(stat.S_IFMT(status.st_mode), "device")


def _draft() -> str:
    return f".shepherd-{secrets.token_hex(8)}.tmp"


class NotAFile(OSError):
    """Not a regular file; `strerror` says what it is."""


class Folder:
    """An open directory; closed at the end of its `with`. For one thread at a time."""

    def __init__(self, path: str, handle: int | None) -> None:
        self.path = path
        """Where it was when it was opened."""
        self.handle = handle

    @classmethod
    def top(cls, path: str) -> Folder:
        """The directory with this absolute path, which leads through no link. Raises: `OSError`."""
        anchor = os.path.splitdrive(path)[0] + os.sep
        folder = cls(anchor, os.open(anchor, WALK | SAFE) if HAS_HANDLES else None)
        return folder.down([part for part in path[len(anchor) :].split(os.sep) if part])

    def down(self, names: list[str]) -> Folder:
        """The directory at this path in this one, which is closed. Raises: `OSError`."""
        folder = self
        for name in names:
            with folder:
                folder = folder.child(name)
        return folder

    def child(self, name: str) -> Folder:
        """A directory in it. Raises: `NotADirectoryError` for anything else, a link to one too; other `OSError`."""
        path = self.path if name == "." else os.path.join(self.path, name)
        if self.handle is None:
            if kind_of(os.lstat(path)) != "directory":
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
            return Folder(path, None)
        try:
            return Folder(path, os.open(name, WALK | SAFE, dir_fd=self.handle))
        except OSError as error:
            if error.errno == errno.ELOOP:  # macOS, for a link
                raise NotADirectoryError(errno.ENOTDIR, error.strerror, name) from error
            raise

    def look(self, name: str) -> os.stat_result | None:
        """The status of a name, of a link its own; None = there is nothing. Raises: `OSError`."""
        try:
            return os.stat(self._at(name), dir_fd=self.handle, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def link(self, name: str) -> str | None:
        """Where a link leads; None = it is no link. Raises: `OSError`."""
        if (status := self.look(name)) is None or kind_of(status) != "symlink":
            return None
        try:
            return os.readlink(self._at(name), dir_fd=self.handle)
        except OSError as error:
            if error.errno in {errno.EINVAL, errno.ENOENT}:  # it was one just now
                return None
            raise

    def open(self, name: str, flags: int = os.O_RDONLY) -> int:
        """A handle of a regular file, which the caller closes. Raises: `NotAFile`, `OSError`."""
        if PRIVATE.fullmatch(os.path.join(self.path, name)):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), name)
        # Checked before, since to open a device may do something; and afterwards, since it may be replaced meanwhile.
        status = self.look(name)
        if status is not None and kind_of(status) != "file":
            raise NotAFile(errno.EINVAL, f"is a {kind_of(status)}, not a file", name)
        handle = os.open(self._at(name), flags | SAFE, dir_fd=self.handle)
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            os.close(handle)
            raise NotAFile(errno.EINVAL, "is not a file any more", name)
        return handle

    def make(self, name: str) -> None:
        """A new directory in it, unless there is something already. Raises: `OSError`."""
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._at(name), dir_fd=self.handle)

    def replace(self, name: str, content: bytes, *, mode: int | None = None) -> bool:
        """Write a whole file in one step, so that it has its old content or the new one. Whether it is a new file.

        An old file keeps its owner if permitted, and its mode unless another `mode` is given; its hard links keep the
        old content. Raises: `NotAFile`, `OSError`.
        """
        old = None
        with contextlib.suppress(FileNotFoundError):
            handle = self.open(name, os.O_WRONLY)  # one that may not be written is not replaced either
            old = os.fstat(handle)
            os.close(handle)
        draft = _draft()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | SAFE
        handle = os.open(self._at(draft), flags, 0o600 if old or mode is not None else 0o666, dir_fd=self.handle)
        try:
            with open(handle, "wb") as file:
                file.write(content)
                file.flush()
                if old is not None and hasattr(os, "fchown"):
                    mode = stat.S_IMODE(old.st_mode) if mode is None else mode
                    if (old.st_uid, old.st_gid) != (os.geteuid(), os.getegid()):
                        with contextlib.suppress(PermissionError):
                            os.fchown(handle, old.st_uid, old.st_gid)
                if mode is not None and hasattr(os, "fchmod"):
                    os.fchmod(handle, mode & 0o777)  # no setuid for other content
                os.fsync(handle)
            self._rename(draft, name)
        except BaseException:
            with contextlib.suppress(OSError):
                self.unlink(draft)
            raise
        return old is None

    def make_link(self, name: str, target: str) -> None:
        """Put a symbolic link in the place of a file or of nothing, in one step. Raises: `OSError`."""
        draft = _draft()
        os.symlink(target, self._at(draft), dir_fd=self.handle)
        try:
            self._rename(draft, name)
        except BaseException:
            self.unlink(draft)
            raise

    def _rename(self, draft: str, name: str) -> None:
        os.replace(self._at(draft), self._at(name), src_dir_fd=self.handle, dst_dir_fd=self.handle)

    def unlink(self, name: str) -> None:
        """Remove a name, a link and not what it leads to. Raises: `OSError`, for a directory too."""
        os.unlink(self._at(name), dir_fd=self.handle)

    def remove_folder(self, name: str) -> None:
        """Remove an empty directory. Raises: `OSError`."""
        os.rmdir(self._at(name), dir_fd=self.handle)

    def scan(self) -> list[tuple[str, EntryKind | None]]:
        """The names in it with their kinds, in a stable order; None = see `look`. Raises: `OSError`."""
        handle = None if self.handle is None else os.open(".", os.O_RDONLY | SAFE, dir_fd=self.handle)
        try:
            with os.scandir(self.path if handle is None else handle) as entries:
                found: list[tuple[str, EntryKind | None]] = [
                    (entry.name, "directory" if entry.is_dir(follow_symlinks=False) else
                     "symlink" if entry.is_symlink() else
                     "file" if entry.is_file(follow_symlinks=False) else None)
                    for entry in entries
                ]  # fmt: skip
        finally:
            if handle is not None:
                os.close(handle)
        return sorted(found, key=lambda entry: (entry[0].casefold(), entry[0]))

    def _at(self, name: str) -> str:
        return name if self.handle is not None else os.path.join(self.path, name)

    def close(self) -> None:
        if self.handle is not None and self.handle >= 0:
            os.close(self.handle)
            self.handle = -1  # not None: later calls must fail, and not use the path

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
