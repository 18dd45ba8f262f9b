"""What keeps a tool in its place: folders it may open, addresses it may reach, processes it may leave behind.

Open first: `roots.py` (files), `network.py` (addresses), `process_tree.py` (commands), `isolated.py` (work in a child
process).
"""
