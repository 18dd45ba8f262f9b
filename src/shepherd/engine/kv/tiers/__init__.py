"""Conversations that had to leave the KV cache: kept in host memory and on disk, and found again for a later prompt.

`snapshot` says what is saved and what of it a prompt can use, `gdsf` what is worth its bytes, `file` how one snapshot
lies on disk; `store` joins them and owns the only thread here.
"""

from shepherd.engine.kv.tiers.snapshot import Snapshot, SnapshotCounts, SnapshotMatch
from shepherd.engine.kv.tiers.store import Snapshots

__all__ = ["Snapshot", "SnapshotCounts", "SnapshotMatch", "Snapshots"]
