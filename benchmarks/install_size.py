"""Size on disk of a base installation without torch, package by package: `python -m benchmarks.install_size`.

Packages are those that the base requirements lead to without passing through torch, as installed here.
"""

from collections.abc import Mapping
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

BAR_MB = 500
MEGABYTE = 1e6
LEAST_SHOWN = 1.0


def required(name: str) -> list[str]:
    """Packages that one requires here, without extras."""
    parsed = [Requirement(text) for text in distribution(name).requires or ()]
    return [canonicalize_name(one.name) for one in parsed if one.marker is None or one.marker.evaluate({"extra": ""})]


def closure(roots: list[str], without: frozenset[str] = frozenset({"torch"})) -> dict[str, float]:
    """Megabytes of every package that these lead to, themselves included, largest first."""
    found: dict[str, float] = {}
    ahead = list(roots)
    while ahead:
        name = ahead.pop()
        if name not in found and name not in without:
            try:
                found[name] = megabytes(distribution(name))
            except PackageNotFoundError:  # not for this platform
                continue
            ahead += required(name)
    return dict(sorted(found.items(), key=lambda item: -item[1]))


def megabytes(package: Distribution) -> float:
    """Size of the files of an installed package."""
    files = [Path(file.locate()) for file in package.files or ()]
    return sum(path.stat().st_size for path in files if path.is_file()) / MEGABYTE


def table(sizes: Mapping[str, float], theirs: Mapping[str, float]) -> str:
    """A line for each package of at least a megabyte, and the totals."""
    lines = [f"{'package':<28}{'MB':>8}  required by"]
    for name, size in sizes.items():
        if size >= LEAST_SHOWN:
            lines.append(f"{name:<28}{size:>8.1f}  {'transformer-lens' if name in theirs else 'unmyopic'}")
    small = [size for size in sizes.values() if size < LEAST_SHOWN]
    lines.append(f"{f'{len(small)} smaller packages':<28}{sum(small):>8.1f}")
    total, part = sum(sizes.values()), sum(theirs.values())
    verdict = "passes" if total <= BAR_MB else "FAILS"
    lines.append(f"{'all, without torch':<28}{total:>8.1f}  of which transformer-lens leads to {part:.1f}")
    return "\n".join([*lines, f"bar {BAR_MB} MB: {verdict}"])


if __name__ == "__main__":
    print(table(closure(["unmyopic"]), closure(["transformer-lens"])))
