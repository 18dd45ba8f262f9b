"""The insides of blocks, one file a notation: where a block ends, and the calls in it. Open first: `machine.py`."""
