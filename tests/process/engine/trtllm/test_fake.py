"""The tests of `tests/unit/engine/trtllm/test_fake.py` that start programs."""

from __future__ import annotations

from tests.unit.engine.trtllm import trt  # noqa: F401 - it keeps MPI out of this process
from tests.unit.engine.trtllm.test_fake import run


def test_the_import_writes_a_banner_and_reads_the_log_level_once() -> None:
    code = (
        "import os, tensorrt_llm as t; os.environ['TLLM_LOG_LEVEL'] = 'info'; import tensorrt_llm; print(t.LOG_LEVEL)"
    )
    done = run(code, TLLM_DISABLE_MPI="1", TLLM_LOG_LEVEL="error")
    assert done.stdout.splitlines() == ["[TensorRT-LLM] TensorRT LLM version: 1.2.1 (a fake for tests)", "error"], done


def test_the_later_version_has_its_own_signatures() -> None:
    code = (
        "import inspect, tensorrt_llm as t\nfrom tensorrt_llm import signatures as s\n"
        "print('priority' in s.signature('BaseLLM.generate_async').parameters)\n"
        "t.KvCacheConfig(disk_cache_size=5)\ntry: t.KvCacheConfig(onboard_blocks=True)\n"
        "except ValueError: print('gone')"
    )
    done = run(code, TLLM_DISABLE_MPI="1", FAKE_TRTLLM_VERSION="1.3.0rc15")
    assert done.stdout.splitlines()[1:] == ["True", "gone"], done
