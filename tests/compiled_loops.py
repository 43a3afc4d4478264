"""Where what numba compiles is kept while thinwire is worked on: by all that it is made from.

numba looks at the file of a loop only, not at what the loop calls in others, and would go on with old code.
"""

import hashlib
import os
import tempfile
from pathlib import Path

LOOPS = Path(__file__).parents[1] / "src" / "thinwire" / "kernels" / "loops"


def keep_by_digest() -> None:
    files = [*sorted(LOOPS.glob("*.py")), LOOPS.parent / "layout.py"]  # whose numbers are in what is compiled
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]
    os.environ.setdefault("NUMBA_CACHE_DIR", str(Path(tempfile.gettempdir()) / f"thinwire-loops-{digest}"))
