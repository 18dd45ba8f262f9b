"""`python -m shepherd.engine.worker`: a child without ranks. `ChildEngine` starts it."""

import os
import sys

from shepherd.engine.worker.host import serve

if __name__ == "__main__":
    status = serve()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)  # an engine thread that never ends must not keep the process
