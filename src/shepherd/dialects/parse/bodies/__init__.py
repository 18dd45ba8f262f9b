"""The insides of calls, one file a kind: where a block ends, and the calls that stand in it."""
