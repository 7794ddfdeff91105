"""Is the error small enough? If not, how many candidates for each weight would do?"""

from collections.abc import Callable

MOST_CANDIDATES = 36
"""Beyond, a single weight has a million sums in either half."""


def check_tolerance(
    error: float, tolerance: float | None, candidates: int, error_with: Callable[[int], float] | None
) -> None:
    """Refuse an error above what was asked for.

    Args:
        error: What was found.
        tolerance: What was asked for; nothing when None.
        candidates: How many each weight had.
        error_with: The error with another number, to find one that is enough; None if there is no trying.

    Raises:
        ValueError: the error is larger. The text says which number is enough, by trying even steps upwards.
    """
    if tolerance is None or error <= tolerance:
        return
    more = range(candidates + 2, MOST_CANDIDATES + 1, 2)
    enough = None if error_with is None else next((n for n in more if error_with(n) <= tolerance), None)
    advice = f"{enough} candidates reach it." if enough else "Ask for less, or give a wider random network."
    raise ValueError(
        f"candidates is {candidates}: the largest error found is {error:.2g}, and {tolerance:.2g} was asked for. "
        f"{advice}"
    )
