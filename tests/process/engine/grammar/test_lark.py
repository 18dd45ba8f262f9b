"""The tests of `tests/unit/engine/grammar/test_lark.py` that start programs."""

import subprocess
import sys


def test_the_bounds_are_far_from_where_the_process_ends() -> None:
    """The reason for all this: three times the depth that is allowed must still be harmless."""
    script = (
        "import json, sys, threading\n"
        "from shepherd.engine.grammar.mask import fault_of\n"
        "links = {f'd{i}': {'properties': {'x': {'$ref': f'#/$defs/d{i + 1}'}}} for i in range(int(sys.argv[1]))}\n"
        "schema = {'$ref': '#/$defs/d0', '$defs': {**links, f'd{sys.argv[1]}': {'type': 'string'}}}\n"
        "thread = threading.Thread(target=lambda: print(repr(fault_of(schema))))\n"
        "thread.start()\n"
        "thread.join()\n"
    )
    done = subprocess.run([sys.executable, "-c", script, "600"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "''\n"), "600 links are 1,800 levels"
