"""What keeps a tool in its place: folders it may open, addresses it may reach.

Open first: `roots.py` (files), `network.py` (addresses), `confinement.py` (what a command may see).
"""
