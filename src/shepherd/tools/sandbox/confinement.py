"""A thread whose programs cannot look into other processes: the environment of a process holds keys.

The means is a Landlock domain (Linux 5.19) that forbids nothing else: the kernel closes `/proc/PID/environ`, `ps eww`
and debuggers to everything outside of the domain, our whole chain of parents included. A domain also closes `mount`
and, unless this program is root, `sudo`. Where the kernel has no Landlock, our own process alone closes itself
(`PR_SET_DUMPABLE`). macOS has neither.
"""

from __future__ import annotations

import ctypes
import errno
import logging
import os
import struct
import sys

logger = logging.getLogger(__name__)

CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
"""System calls, the same on every architecture."""
VERSION_FLAG, PATH_BENEATH = 1, 1
OLDEST = 2
"""A domain of version 1 cannot move a file to another folder."""
ALLOWED = 1 << 11 | 1 << 13
"""To create block devices, and to move files: a domain must handle a right, and allows these again below `/`."""
PR_SET_DUMPABLE, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS = 4, 24, 38
LOOKING = (19, 21, 38)
"""With `CAP_SYS_PTRACE`, `CAP_SYS_ADMIN` or `CAP_PERFMON`, the programs of root look past a domain."""


def confine() -> bool:
    """Whether programs that this thread starts from now on can look into no process but their own children. For the
    rest of the thread. Without Landlock, our process is closed to them, and the answer is False.
    """
    if sys.platform != "linux":
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.syscall(CREATE_RULESET, None, 0, VERSION_FLAG) < OLDEST:
        libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
        return False
    rules = libc.syscall(CREATE_RULESET, ctypes.byref(ctypes.c_uint64(ALLOWED)), 8, 0)
    top = os.open("/", os.O_PATH | os.O_CLOEXEC)
    try:
        done: int = libc.syscall(ADD_RULE, rules, PATH_BENEATH, struct.pack("=Qi", ALLOWED, top), 0)
        if not done and (done := libc.syscall(RESTRICT_SELF, rules, 0)) and ctypes.get_errno() == errno.EPERM:
            libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
            done = libc.syscall(RESTRICT_SELF, rules, 0)
    finally:
        os.close(top)
        os.close(rules)
    if done:
        logger.warning("commands may see keys of other processes: %s", os.strerror(ctypes.get_errno()))
        libc.prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
        return False
    for capability in LOOKING:
        libc.prctl(PR_CAPBSET_DROP, capability, 0, 0, 0)  # fails without privileges, which then are not there
    return True
