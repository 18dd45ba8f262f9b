"""Child processes: started, limited, marked and ended in one way; and files that several processes share.

    child.py      work of a library that may abort: run it in a child, keep the verdict
    isolated.py   pure work on hostile input, with a limit of time and memory
    tree.py       a program and everything that it starts, ended together
    guardian.py   ends them when this program is killed

Open first: `tree.py`. Not here: what a tool may see and reach (`tools/sandbox`), an engine in another process
(`engine/worker`). *Tree*: a process and all its descendants. *Verdict*: the result of a child, kept in a file.
*Deadline*: processor time after which a child is killed.
"""
