"""The published models for which checks were written."""

from published_readings import brackets, cumsum, palindrome, sorted_list
from published_readings.checks import Known

KNOWN: dict[str, Known] = {
    "brackets": Known(digest="c0c6a245ecef8c08", checks=brackets.CHECKS, kinds=brackets.KINDS),
    "palindrome": Known(digest="44cf284253ca9ef6", checks=palindrome.CHECKS, kinds=palindrome.KINDS),
    "sorted_list": Known(digest="fb0c1a17f650e6d1", checks=sorted_list.CHECKS, kinds=sorted_list.KINDS),
    "cumsum": Known(digest="21d0c72da5e555d9", checks=cumsum.CHECKS, kinds=cumsum.KINDS),
}
