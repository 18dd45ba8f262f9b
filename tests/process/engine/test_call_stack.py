"""What the watchdog says of a thread that stands still must not stop the whole process."""

import subprocess
import sys

from tests.in_time import PATIENCE_S

COLLECTS_MEANWHILE = """
import gc, threading
from shepherd.engine.watchdog import call_stack

idle = threading.Event()
threads = [threading.Thread(target=idle.wait, daemon=True) for _ in range(200)]
for thread in threads:
    thread.start()
gc.collect()
gc.disable()
own = threading.local()
own.circle = [own]
del own
gc.set_threshold(gc.get_count()[0] + 100)  # the collector runs in the middle of the list of 200 frames
gc.enable()
print(call_stack(threads[0]), gc.isenabled())
"""


def test_garbage_of_a_thread_that_is_collected_meanwhile_stops_nothing() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", COLLECTS_MEANWHILE], capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert ended.stderr == ""
    assert ended.stdout.endswith(" wait True\n")
