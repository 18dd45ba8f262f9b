"""llama.cpp in process: the only package that uses `llama_cpp`, and only its low-level ctypes bindings.

Open first: `runtime.py` (a context as a `Runtime`), then `weights.py` (a model and its vocabulary) and `library.py`
(the native library). Every C return code is checked here and becomes an error of ours; a call that would abort the
process is refused before it is made; llama.cpp's output goes to Python's logging. *Weights*: loaded once, shared by
contexts. *Context*: a `llama_context`, one pool of cells. *Batch*: the tokens of one decode.
"""
