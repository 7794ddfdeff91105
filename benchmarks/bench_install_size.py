"""Size on disk of a base installation without torch.

Packages are those that the base requirements lead to without passing through torch, as installed here.
"""

from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from benchmarks.timing import BenchmarkResult

BAR_MB = 500
MEGABYTE = 1e6
SMALL = 1.0
"""Megabytes of a package below which it is not listed."""


def comparisons() -> Iterator[BenchmarkResult]:
    sizes, transformer_lens = closure("unmyopic"), closure("transformer-lens")
    total, through_transformer_lens = sum(sizes.values()), sum(transformer_lens.values())
    packages = []
    for name, size in sizes.items():
        if size >= SMALL:
            mark = "*" if name in transformer_lens else ""
            packages.append(f"{name}{mark} {size:.1f}")
    summary = f"{total:.1f} MB, of which TransformerLens (*) leads to {through_transformer_lens:.1f}"
    figures = f"{summary}: {', '.join(packages)}"
    yield BenchmarkResult(name="base installation without torch", figures=figures, bar=BAR_MB, passes=total <= BAR_MB)


def closure(root: str, *, without: str = "torch") -> dict[str, float]:
    """Megabytes of every package that a package leads to, itself included, largest first."""
    sizes: dict[str, float] = {}
    remaining = [root]
    while remaining:
        name = remaining.pop()
        if name not in sizes and name != without:
            try:
                sizes[name] = megabytes(distribution(name))
            except PackageNotFoundError:  # not for this platform
                continue
            remaining += required_packages(name)
    return dict(sorted(sizes.items(), key=lambda package: -package[1]))


def required_packages(name: str) -> list[str]:
    """Packages that a package requires here, without extras."""
    requirements = [Requirement(text) for text in distribution(name).requires or ()]
    return [
        canonicalize_name(requirement.name)
        for requirement in requirements
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    ]


def megabytes(package: Distribution) -> float:
    """Size of the files of an installed package."""
    paths = [Path(file.locate()) for file in package.files or ()]
    return sum(path.stat().st_size for path in paths if path.is_file()) / MEGABYTE
