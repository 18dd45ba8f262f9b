"""Ends the MCP servers of a program that was killed with SIGKILL or crashed.

A shell of a few lines, in a session of its own, reads the process groups from a pipe. The kernel closes the pipe
however we end, and then the shell kills the groups that are left. (PR_SET_PDEATHSIG needs code between fork and exec,
which is not safe in a program with threads; it watches the thread that forked, and it reaches no grandchildren, which
`npx` starts.)

Daemons, which have left their group and parents, are not found. Windows has no guardian.
"""

from __future__ import annotations

import contextlib
import logging
import subprocess
import sys

logger = logging.getLogger(__name__)

SCRIPT = """
trap '' HUP INT QUIT TERM
groups=' '
while read -r sign group; do
  case $sign in
    +) groups="$groups$group " ;;
    -) case $groups in *" $group "*) groups="${groups%% $group *} ${groups#* $group }" ;; esac ;;
  esac
done
[ "$groups" = ' ' ] && exit 0
sleep 1
for signal in TERM KILL; do
  for group in $groups; do kill -s $signal -- -$group 2>/dev/null; done
  [ $signal = TERM ] && sleep 1
done
"""
"""The first second is for servers that end when their standard input does."""


class Guardian:
    """Watches process groups by their leaders. Started with the first; `close` ends it, and waits for it."""

    def __init__(self) -> None:
        self.shell: subprocess.Popen[bytes] | None = None

    def watch(self, group: int) -> None:
        if sys.platform == "win32":
            return
        if self.shell is None:
            null = subprocess.DEVNULL
            environment = {"PATH": "/usr/bin:/bin"}  # nothing of ours: some shells run the file that ENV names
            try:
                self.shell = subprocess.Popen(
                    ["/bin/sh", "-c", SCRIPT], stdin=subprocess.PIPE, stdout=null, stderr=null,
                    start_new_session=True, cwd="/", env=environment,
                )  # fmt: skip
            except OSError as error:
                logger.info("no guardian for MCP servers, should this program be killed: %s", error)
        self._send(f"+ {group}")

    def release(self, group: int) -> None:
        """The group is gone: another one may get its number."""
        self._send(f"- {group}")

    def _send(self, line: str) -> None:
        if self.shell is not None and self.shell.stdin is not None:
            with contextlib.suppress(OSError):  # the shell was killed
                self.shell.stdin.write(line.encode() + b"\n")
                self.shell.stdin.flush()

    def close(self) -> None:
        """Blocks for a moment; for two seconds if groups are left, which it then kills."""
        if self.shell is None:
            return
        if self.shell.stdin is not None:
            with contextlib.suppress(OSError):
                self.shell.stdin.close()
        try:
            self.shell.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self.shell.kill()
            self.shell.wait()
        self.shell = None
