"""The process in which math-verify compares one pair at a time; `symbolic.py` starts it, and kills it when it is late.

Run as a file, with nothing of this package imported: `python -P symbolic_server.py SECONDS`. A line of JSON in
(`id`, `gold`, `prediction`: LaTeX without dollar signs), a line of JSON out (`id`, `verdict`, `reason`). The first line
out is `{"ready": true}`, after the imports. It ends when its input does.
"""

import json
import os
import signal
import sys

DIGITS = 12  # decimals that must agree; math-verify's own 6 would take 1.414214 for the root of 2
MEMORY = 2 << 30  # bytes of address space: a bomb meets this before the machine does


def main() -> None:
    """Answer line by line until the input ends."""
    out = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(
        os.open(os.devnull, os.O_WRONLY), 1
    )  # whatever a library prints must not stand between our lines
    try:
        import logging

        import math_verify  # noqa: F401

        logging.disable(
            logging.CRITICAL
        )  # it warns that its own time limit is off: ours cannot be caught
        _limit_memory()
    except Exception as error:
        _say(out, {"ready": False, "reason": f"{type(error).__name__}: {error}"})
        return
    _say(out, {"ready": True})
    limit = float(sys.argv[1])
    for line in sys.stdin:
        job = json.loads(line)
        # The last resort: if the parent is gone, the kernel ends us, even in the middle of one long multiplication.
        signal.setitimer(signal.ITIMER_REAL, 2 * limit + 5)
        verdict, reason = compare(job["gold"], job["prediction"])
        signal.setitimer(signal.ITIMER_REAL, 0)
        _say(out, {"id": job["id"], "verdict": verdict, "reason": reason})


def compare(gold: str, prediction: str) -> tuple[str, str]:
    """("right" | "wrong" | "error", reason). The gold answer goes first: math-verify treats the sides differently."""
    from math_verify import verify

    try:
        wanted = _parse(gold)
    except Exception as error:
        return "error", f"the gold answer cannot be read: {_words(error)}"
    if not wanted:
        return "error", "the gold answer cannot be read"
    try:
        given = _parse(prediction)
        if not given:
            return "wrong", "the prediction cannot be read"
        # its own timeouts use signals and can be caught on the way: ours kills the process
        right = verify(
            wanted, given, float_rounding=DIGITS, timeout_seconds=None, raise_on_error=True
        )
    except Exception as error:
        return "error", _words(error)
    return ("right", "equal") if right else ("wrong", "not equal")


def _parse(latex: str) -> list:
    from math_verify import parse
    from math_verify.parser import LatexExtractionConfig

    config = [LatexExtractionConfig(boxed_match_priority=0)]
    return parse(
        f"\\boxed{{{latex}}}", extraction_config=config, parsing_timeout=None, raise_on_error=True
    )


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}" if str(error) else type(error).__name__


def _say(out, message: dict) -> None:
    out.write(json.dumps(message) + "\n")
    out.flush()


def _limit_memory() -> None:
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    except (ImportError, ValueError, OSError):
        pass  # not everywhere; the time limit holds everywhere


if __name__ == "__main__":
    main()
