"""The work-arounds for versions of libraries."""

import os
import sys

import pytest

from grpo_workbook import compat

VLLM = ("UNSLOTH_VLLM_STANDBY", "UNSLOTH_VLLM_STANDBY_UTIL_OVERRIDE")


@pytest.fixture
def _no_variables(monkeypatch):
    for name in (*VLLM, "UNSLOTH_MIXED_PRECISION"):
        monkeypatch.setenv(name, "")  # to be set back after the test
        monkeypatch.delenv(name)


@pytest.mark.usefixtures("_no_variables")
def test_vllm_sleeps_unless_told_otherwise_and_never_too_late(monkeypatch):
    monkeypatch.setitem(sys.modules, "unsloth", None)  # too late: its memory is not made for it
    compat.let_vllm_sleep()
    assert not set(VLLM) & set(os.environ)
    monkeypatch.delitem(sys.modules, "unsloth")
    monkeypatch.setenv(VLLM[0], "0")
    compat.let_vllm_sleep()
    assert [os.environ[name] for name in VLLM] == ["0", "1"]


@pytest.mark.usefixtures("_no_variables")
@pytest.mark.parametrize(("dtype", "said"), [("float32", "bfloat16"), ("float16", "float32")])
def test_unsloth_is_told_not_to_compute_float32_in_bfloat16(dtype, said):
    compat.keep_float32(dtype)
    assert os.environ["UNSLOTH_MIXED_PRECISION"] == said


def test_attention_copies_again_after_an_error():
    from transformers.integrations import sdpa_attention

    def fail():
        with compat.grouped_heads_without_copies():
            assert sdpa_attention.use_gqa_in_sdpa(None, None) is True
            raise KeyError

    before = sdpa_attention.use_gqa_in_sdpa
    with pytest.raises(KeyError):
        fail()
    assert sdpa_attention.use_gqa_in_sdpa is before


def test_only_a_cpu_is_too_little_for_plain_trl():
    assert "Triton" in compat.why_not_plain("cpu")
    assert compat.why_not_plain("cuda") is None
