"""TensorRT-LLM as an engine, always in processes of its own: Shepherd's own process never imports it, nor MPI.

Open first: `engine.py` (jobs, threads, what has left a conversation), `library.py` (the one file that touches
`tensorrt_llm`), `launch.py` (how the processes start) and `ranks.py` (what each of them does). `arguments.py` maps a
job to the library's parameters, `events.py` reads the library's cache events, `vocabulary.py` a checkpoint's tokens.
*Rank*: one process of a model, with one GPU; rank 0 is connected to Shepherd. *Spawn*: the library starts the other
ranks itself. *mpirun*: Open MPI starts them all.
"""
