"""group_advantages against rlox's Rust, TRL's own lines, plain NumPy and a Python loop, in one run.

    pip install --target /tmp/rlox --no-deps rlox==1.2.0 gymnasium cloudpickle farama-notifications
    PYTHONPATH=/tmp/rlox python benchmarks/advantages.py             # about a minute
    PYTHONPATH=/tmp/rlox python benchmarks/advantages.py --threads 1

Nothing else needs rlox; without it the script runs and says so. Every implementation gets its own
kind of input (tensor, array or list) and must give the right numbers before it is timed. rlox
divides by the population deviation without an epsilon, and accepts only float64: the comparison
corrects for this, and with float32 rewards its time includes the conversion to float64. Times are
medians over rounds in which the implementations take turns.
"""

import argparse
import inspect
import math
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

SIZES = ((64, 8), (1024, 8), (4096, 16), (16384, 16), (65536, 16))
LOOP_UP_TO = 16384 * 16  # the Python loop is left out where a call takes a good part of a second


def trl_lines(rewards, num_generations: int):
    """What GRPOTrainer does with scale_rewards="group" (TRL 1.15), line by line."""
    import torch
    from trl.trainer.utils import nanstd

    mean_grouped_rewards = torch.nanmean(rewards.view(-1, num_generations), dim=1)
    mean_grouped_rewards = mean_grouped_rewards.repeat_interleave(num_generations, dim=0)
    std_rewards = nanstd(rewards.view(-1, num_generations), dim=1)
    std_rewards = std_rewards.repeat_interleave(num_generations, dim=0)
    advantages = rewards - mean_grouped_rewards
    advantages = advantages / (std_rewards + 1e-4)
    return torch.nan_to_num(advantages, nan=0.0)


def still_trls_lines() -> bool:
    """Whether the installed TRL has the lines above."""
    from trl.trainer import grpo_trainer

    source = "".join(inspect.getsource(grpo_trainer).split())
    _, _, body = inspect.getsource(trl_lines).partition("nanstd\n\n")
    for line in body.replace("return ", "advantages = ").splitlines():
        if "".join(line.split()) not in source:
            return False
    return True


def numpy_lines(rewards, group_size: int):
    """What one would write in NumPy."""
    groups = rewards.reshape(-1, group_size)
    centred = groups - groups.mean(axis=1, keepdims=True)
    return (centred / (groups.std(axis=1, ddof=1, keepdims=True) + 1e-4)).reshape(-1)


def python_loop(rewards: list[float], group_size: int) -> list[float]:
    """What one would write without any library."""
    advantages = []
    for start in range(0, len(rewards), group_size):
        group = rewards[start : start + group_size]
        mean = sum(group) / group_size
        std = math.sqrt(sum((r - mean) ** 2 for r in group) / (group_size - 1))
        advantages += [(r - mean) / (std + 1e-4) for r in group]
    return advantages


def find_rlox() -> Callable | None:
    try:
        from rlox import compute_batch_group_advantages
    except ImportError as error:
        print(f"rlox is left out ({error}); how to install it stands at the top of this file\n")
        return None
    return compute_batch_group_advantages


def implementations(
    tensor, group_size: int, rlox: Callable | None
) -> dict[str, tuple[Callable, Callable]]:
    """Each by its name: the call that is timed, and what makes an array of our advantages of it."""
    import numpy as np

    from grpo_workbook.grpo import group_advantages

    array = tensor.numpy()
    values = tensor.tolist()
    calls = {
        "group_advantages": (lambda: group_advantages(tensor, group_size), np.asarray),
        "TRL's lines": (lambda: trl_lines(tensor, group_size), np.asarray),
        "NumPy": (lambda: numpy_lines(array, group_size), np.asarray),
    }
    if rlox is not None:
        groups = array.astype(np.float64).reshape(-1, group_size)
        std = groups.std(axis=1, ddof=1).repeat(group_size)
        # rlox divides by the population's deviation, and adds no epsilon
        correction = np.sqrt((group_size - 1) / group_size) * std / (std + 1e-4)
        calls["rlox (Rust)"] = (
            lambda: rlox(array.astype(np.float64, copy=False), group_size),
            lambda advantages: advantages * correction,
        )
    if len(values) <= LOOP_UP_TO:
        calls["Python loop"] = (lambda: python_loop(values, group_size), np.asarray)
    return calls


def measure(calls: dict[str, Callable], rounds: int, seconds: float) -> dict[str, float]:
    """Seconds a call, the median over rounds; in each round every implementation has its turn."""
    repeats = {}
    for name, call in calls.items():
        start = time.perf_counter()
        call()
        repeats[name] = max(1, min(1000, int(seconds / (time.perf_counter() - start))))
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            start = time.perf_counter()
            for _ in range(repeats[name]):
                call()
            times[name].append((time.perf_counter() - start) / repeats[name])
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, help="of torch; default: what torch chooses")
    args = parser.parse_args()
    if args.threads:
        os.environ["OMP_NUM_THREADS"] = os.environ["RAYON_NUM_THREADS"] = str(args.threads)

    import numpy as np
    import torch

    if not still_trls_lines():
        print(
            "the installed TRL computes advantages in other lines than this script's: bring them "
            "up to date"
        )
        return 1
    rlox = find_rlox()
    slower = []
    print(f"{torch.get_num_threads()} threads, torch {torch.__version__}, NumPy {np.__version__}")
    print("microseconds a call; in brackets how many times group_advantages' time\n")
    for dtype in (torch.float32, torch.float64):
        for groups, size in SIZES:
            # rewards as the course's functions give them; a tenth of the groups have equal ones
            generator = torch.Generator().manual_seed(groups)
            rewards = torch.randint(0, 13, (groups, size), generator=generator).to(dtype) / 4
            rewards[::10] = rewards[::10, :1]
            tensor = rewards.reshape(-1)
            expected = np.array(python_loop(tensor.double().tolist(), size))
            tolerance = 5e-6 if dtype == torch.float32 else 1e-6
            calls = {}
            for name, (call, to_ours) in implementations(tensor, size, rlox).items():
                worst = np.abs(to_ours(call()) - expected).max()
                assert worst < tolerance, f"{name} is wrong by {worst}"
                calls[name] = call
            times = measure(calls, args.rounds, 0.02)
            ours = times["group_advantages"]
            print(f"{groups} x {size}, {str(dtype).removeprefix('torch.')}")
            for name, seconds in times.items():
                print(f"  {name:18} {seconds * 1e6:11.1f}   ({seconds / ours:.2f})")
            if groups >= 4096 and times.get("rlox (Rust)", math.inf) < ours:
                slower.append(f"{groups} x {size} {dtype}")
    print("\nslower than rlox at 4096 groups and above: " + (", ".join(slower) or "nowhere"))
    return 0


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
    sys.exit(main())
