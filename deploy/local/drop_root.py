"""Run a program as user nobody: `python drop_root.py PROGRAM ARGUMENT...`. Standard library only.

Postgres does not start as root, so it runs under the system account `nobody`. That account often cannot reach
Postgres's files, because the checkout is under root's private home directory. So the program keeps one
capability, which bypasses file permissions. This capability makes Postgres's superuser as powerful as root,
so clients do not get the superuser's password, but that of a lesser role (`USER` in postgres.py).
"""

import ctypes
import os
import pwd
import sys

USER = "nobody"
PR_SET_KEEPCAPS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 8, 47, 2
CAP_DAC_OVERRIDE = 1
CAPABILITY_VERSION_3 = 0x20080522


class Header(ctypes.Structure):
    """`struct __user_cap_header_struct` of Linux."""

    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class Data(ctypes.Structure):
    """`struct __user_cap_data_struct` of Linux."""

    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def become_nobody() -> None:
    """Drop root permanently; keep CAP_DAC_OVERRIDE across exec where the kernel allows it."""
    user = pwd.getpwnam(USER)
    libc = ctypes.CDLL(None, use_errno=True)
    linux = sys.platform.startswith("linux")
    if linux:
        libc.prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0)
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    if linux:
        # results are not checked: without the capability, the program that needs it reports an error
        bit = 1 << CAP_DAC_OVERRIDE
        header, data = Header(CAPABILITY_VERSION_3, 0), (Data * 2)(Data(bit, bit, bit), Data(0, 0, 0))
        libc.capset(ctypes.byref(header), ctypes.byref(data))
        libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, CAP_DAC_OVERRIDE, 0, 0)


if __name__ == "__main__":
    become_nobody()
    os.execv(sys.argv[1], sys.argv[1:])
