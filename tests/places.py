"""Where things are in a checkout, for tests of every depth."""

import os
from pathlib import Path

TESTS = Path(__file__).parent
ROOT = TESTS.parent
SOURCE = ROOT / "src" / "shepherd"
BENCH = ROOT / "bench"
DATA = TESTS / "data"
SHARED = ROOT.parent / "shared"
"""Data that a clone may lack; tests that need it are skipped then."""
CONFORMANCE = Path(os.environ.get("CONFORMANCE_DIR") or SHARED / "conformance")
