"""`python -m shepherd.engine.trtllm`: one rank of a model. Rank 0 serves its engine to the `ChildEngine` of Shepherd.

The factory gets `Ranks.session` behind its other arguments.
"""

import sys

from shepherd.engine.trtllm.ranks import run
from shepherd.engine.worker.host import serve

if __name__ == "__main__":
    sys.exit(run(lambda ranks: serve(ranks.session)))
