"""Conversations that have left the KV cache: kept in host memory and on disk, and found again for a later prompt.

Open first: `snapshot.py` (what is saved, and what a prompt can reuse of it), then `store.py` (both tiers and the I/O
thread). `gdsf.py` decides what is worth its bytes, `file.py` is the format of one snapshot on disk. *Snapshot*: the
saved state of one sequence. *Outline*: a snapshot without the bytes of its states. *Tier*: host memory or disk.
"""

from shepherd.engine.kv.tiers.snapshot import Snapshot, SnapshotCounts, SnapshotMatch
from shepherd.engine.kv.tiers.store import Snapshots

__all__ = ["Snapshot", "SnapshotCounts", "SnapshotMatch", "Snapshots"]
