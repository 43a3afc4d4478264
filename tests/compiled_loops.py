"""Numba's cache directory for tests, named by a digest of all sources of the compiled loops.

Numba checks only the file of a loop, not the functions in other files that it calls, and would reuse outdated code.
"""

import hashlib
import os
import tempfile
from pathlib import Path

LOOPS = Path(__file__).parents[1] / "src" / "thinwire" / "kernels" / "loops"


def cache_by_digest() -> None:
    files = [*sorted(LOOPS.glob("*.py")), LOOPS.parent / "layout.py"]  # its constants are compiled into the loops
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"thinwire-loops-{digest}"))
