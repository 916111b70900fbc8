"""The command line ``msprobe-nb``, also ``python -m msprobe_nb``.

Exit status: 0 success, 1 the job failed (one line says why), 2 wrong use.
"""

from __future__ import annotations

import gc
import os
import sys
from typing import Any

from msprobe_nb.commands import CommandHelp, CommandUsageError, Context, run
from msprobe_nb.errors import MsProbeError


def main(words: list[str] | None = None) -> int:
    """Run a command line and return its exit status."""
    # Nothing here multiplies large matrices; OpenBLAS would start its threads all the same.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # Results are large and free of cycles; looking for cycles often would only cost time.
    gc.set_threshold(200_000, 50, 50)
    context = Context()
    try:
        result = run(sys.argv[1:] if words is None else words, context, "msprobe-nb")
    except CommandHelp as text:
        print(str(text).rstrip())
        return 0
    except CommandUsageError as error:
        print(f"msprobe-nb: {error}", file=sys.stderr)
        return 2
    except (MsProbeError, OSError) as error:
        print(f"msprobe-nb: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("msprobe-nb: interrupted; run the same command again to go on", file=sys.stderr)
        return 1
    print(describe(result))
    if getattr(result, "complete", True) is False and hasattr(result, "parts"):
        print("msprobe-nb: interrupted, the result is partial", file=sys.stderr)
        return 1
    return 0


def describe(result: Any) -> str:
    """A result as text."""
    if hasattr(result, "summary"):
        return str(result.summary())
    if hasattr(result, "to_string"):
        return str(result.to_string(index=False))
    return str(result)
