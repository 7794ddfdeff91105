"""Compiles our own programs and writes their packs; needs the extra `tracr`.

    python -m interp.known_answers.compiled FOLDER [NAME ...]

Without names it writes the packs that are shipped: the same files, byte for byte.
"""

import sys
from pathlib import Path

from interp.known_answers.compiled.packing import SHIPPED, write_packs


def main() -> None:
    """Write packs, as the arguments say."""
    if len(sys.argv) < 2:
        raise SystemExit("usage: python -m interp.known_answers.compiled FOLDER [NAME ...]")
    folder, *names = sys.argv[1:]
    write_packs(Path(folder), names or SHIPPED)


if __name__ == "__main__":
    main()
