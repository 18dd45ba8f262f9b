"""Child processes: started, limited, marked and ended in one way; threads for each kind of work; and files that several
processes share.

    tree.py       starts a program with a mark, and ends it with everything that it has started
    child.py      on top: its temporary folders, its last words, its result, a verdict about it
    isolated.py   on top: calls a function of ours in a child, with limits of time and memory
    guardian.py   ends programs when this one is killed
    pools.py      threads beside the event loop, some for each kind of work
    notify.py     tells systemd that a server is ready, and that it stops
    installed.py  how this program was installed
    files.py      replaces a file as a whole; locks one against other processes

Open first: `tree.py`. *Tree*: a process and all its descendants. *Verdict*: the result of a child, kept in a file.
*Deadline*: processor time after which a child is killed.
"""
