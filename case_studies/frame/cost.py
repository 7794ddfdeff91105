"""CPU time and peak memory of a call."""

import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")
_PROCESS = Path("/proc/self")


def with_cost(call: Callable[[], T]) -> tuple[T, dict[str, Any]]:
    """Call a function; return its result, and `seconds`, `cpu_seconds` (all threads) and `peak_mb` of this process.

    The peak is that of the call on a Linux that lets a process reset its peak (some containers do not); elsewhere
    it is that of the process so far, or None.
    """
    with suppress(OSError):
        (_PROCESS / "clear_refs").write_text("5")  # resets the peak
    started, cpu = time.perf_counter(), time.process_time()
    result = call()
    cost = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - cpu}
    return result, {name: round(value, 3) for name, value in cost.items()} | {"peak_mb": _peak_mb()}


def _peak_mb() -> float | None:
    with suppress(OSError):
        for line in (_PROCESS / "status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return round(int(line.split()[1]) / 1024, 1)
    try:
        import resource
    except ImportError:  # Windows
        return None
    unit = 2**20 if sys.platform == "darwin" else 2**10  # bytes there, kilobytes elsewhere
    return round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit, 1)
