"""How large an array may be that a file asks for.

A few bytes can describe an array of any size: an expanded tensor repeats one element, a sparse
one leaves nearly all out. Such an array is made only if it certainly fits.
"""

from __future__ import annotations

from collections.abc import Sequence

from msprobe_nb.errors import TensorReadError
from msprobe_nb.text import size

MAX_AXES = 64  # of a numpy array
MAX_DENSE_BYTES = 1 << 34
_MAX_INDEX = 2**63 - 1
_SMALL = 1 << 26  # below this nobody asks how much memory is free


def is_possible(shape: Sequence[int], itemsize: int = 1) -> bool:
    """Whether numpy can describe an array of this shape, empty ones included."""
    count = itemsize
    for length in shape:
        if type(length) is not int or length < 0:
            return False
        count *= max(length, 1)
    return len(shape) <= MAX_AXES and count <= _MAX_INDEX


def check_dense(shape: Sequence[int], itemsize: int) -> None:
    """Refuse an array that is larger than the bytes it is made from and might not fit.

    The limit is 16 GiB or half of the memory that is available, whichever is less.

    Raises
    ------
    TensorReadError
        The shape is impossible or its array too large.
    """
    if not is_possible(shape, itemsize):
        raise TensorReadError(f"the shape {list(shape)!s:.80} is impossible")
    wanted = itemsize
    for length in shape:
        wanted *= length
    if wanted > _SMALL and wanted > (limit := min(MAX_DENSE_BYTES, _available() // 2)):
        raise TensorReadError(
            f"the dense form of shape {list(shape)!s:.80} does not fit in memory: it takes "
            f"{size(wanted)}, the limit is {size(limit)}",
            remedy="Record the tensor before it is expanded, or compare on a larger machine",
        )


def _available() -> int:
    """Bytes of memory that can be taken without swapping; plenty where nobody knows."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return 2 * MAX_DENSE_BYTES
