"""The memory of a run by part, before it starts, and what makes it fit.

It is computed from the model's config; nothing is measured. The options below
the first three replace a value of the profile.

examples:
  python -m grpo_workbook plan --model Qwen/Qwen3-4B --lora-rank 64
  python -m grpo_workbook plan --model my/folder --memory 12
  python -m grpo_workbook plan --profile 24gb --no-use-vllm
  python -m grpo_workbook plan --profile t4 --thinking
"""

import argparse

from grpo_workbook.cli import option

USAGE = "%(prog)s [--model M] [--profile P] [options]"


YES_OR_NO = argparse.BooleanOptionalAction  # --use-vllm and --no-use-vllm
OPTIONS = [
    option("--model", default="qwen", metavar="M", help="a family, a folder or a hub id"),
    option("--profile", default="t4", metavar="P", help="smoke, t4, 24gb or 80gb; default t4"),
    option("--memory", type=float, metavar="GIB", help="your GPU's memory"),
    option("--dtype", metavar="D", help="float32, float16 or bfloat16"),
    option("--load-in-4bit", action=YES_OR_NO, help="the base in NF4 (default)"),
    option("--lora-rank", type=int, metavar="N"),
    option("--max-prompt-length", type=int, metavar="N", help="in tokens"),
    option("--image-tokens", type=int, metavar="N", help="of a prompt's pictures; default: none"),
    option("--max-completion-length", type=int, metavar="N", help="in tokens"),
    option("--num-generations", type=int, metavar="N", help="completions per problem"),
    option("--per-device-train-batch-size", type=int, metavar="N", help="completions at once"),
    option("--gradient-accumulation-steps", type=int, metavar="N"),
    option(
        "--steps-per-generation",
        type=int,
        metavar="N",
        help="device batches sampled at once; default: those of a step",
    ),
    option("--generation-batch-size", type=int, metavar="N", help="the same, in completions"),
    option("--target-modules", metavar="A,B", help="the layers with adapters; default: all"),
    option("--gradient-checkpointing", action=YES_OR_NO, help="less memory for more time"),
    option("--thinking", action="store_true", help="let the model think; what that costs"),
    option("--use-vllm", action=YES_OR_NO, help="sample with vLLM beside the training"),
    option(
        "--vllm-gpu-memory-utilization",
        type=float,
        metavar="X",
        help="vLLM's part of the memory, 0 to 1",
    ),
]


def main(args: argparse.Namespace) -> int:
    """Print the plan: 1 if the run does not fit, 0 if it fits or that is unknown."""
    from grpo_workbook.cli.options import modules_of
    from grpo_workbook.planning import plan

    computed = plan(
        args.model,
        args.profile,
        gib=args.memory,
        dtype=args.dtype,
        load_in_4bit=args.load_in_4bit,
        lora_rank=args.lora_rank,
        max_prompt_length=args.max_prompt_length,
        max_completion_length=args.max_completion_length,
        num_generations=args.num_generations,
        per_device_train_batch_size=args.per_device_train_batch_size,
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        steps_per_generation=args.steps_per_generation,
        generation_batch_size=args.generation_batch_size,
        target_modules=modules_of(args.target_modules),
        gradient_checkpointing=args.gradient_checkpointing,
        use_vllm=args.use_vllm,
        vllm_gpu_memory_utilization=args.vllm_gpu_memory_utilization,
        image_tokens=args.image_tokens,
        thinking=args.thinking,
    )
    print(computed)
    # `fits` is None where the GPU's memory is unknown, which is no failure.
    return 1 if computed.fits is False else 0
