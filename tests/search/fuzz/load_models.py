"""Loads models in a row, for whoever sends their paths: one JSON line in, one line out. Ends where the library does."""

import json
import sys
from pathlib import Path

from shepherd.core import ShepherdError
from shepherd.engine.llamacpp import trial
from shepherd.process import child

child.limit_memory(trial.MOST_MEMORY_BYTES)
for line in sys.stdin:
    task = json.loads(line)
    try:
        trial.load(Path(task["path"]), makes_vectors=task["makes_vectors"])
    except ShepherdError as error:
        print(json.dumps(error.message), flush=True)
    else:
        print(json.dumps(""), flush=True)
