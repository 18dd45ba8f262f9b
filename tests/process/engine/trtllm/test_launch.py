"""The tests of `tests/unit/engine/trtllm/test_launch.py` that start programs."""

import os
import subprocess
import sys
from pathlib import Path


def test_a_plan_imports_nothing_of_mpi_or_cuda(tmp_path: Path) -> None:
    for name in ("mpi4py", "torch", "tensorrt_llm", "numpy", "llama_cpp"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported ' + __name__)")
    code = (
        "import sys\nfrom shepherd.engine.trtllm.launch import plan\n"
        "plan((1, 2, 1), 'mpirun', environ={}, find=lambda name: name)\n"
        "assert not {'mpi4py', 'torch', 'tensorrt_llm', 'numpy', 'llama_cpp'} & set(sys.modules)"
    )
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
    subprocess.run([sys.executable, "-c", code], env=environ, check=True, timeout=60)
