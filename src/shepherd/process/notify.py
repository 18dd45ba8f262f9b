"""Tells the service manager that started this process how it is: systemd's protocol, a datagram for each message.

    READY=1  it listens · STATUS=…  a line for people · STOPPING=1  it ends in order

The socket is systemd's NOTIFY_SOCKET; without it nothing happens.
"""

from __future__ import annotations

import contextlib
import os
import socket


def notify(message: str) -> None:
    """Send one message. A manager that cannot be reached changes nothing for the server."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address.startswith(("/", "@")) or not hasattr(socket, "AF_UNIX"):
        return
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        sender.setblocking(False)
        sender.sendto(message.encode(), f"\0{address[1:]}" if address.startswith("@") else address)
