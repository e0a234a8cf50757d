"""Judge what was recorded: operations with their times, against a model of what may be.

The registry's Python packages hold no checker of this kind (porcupine is Go, Knossos is Clojure),
so `checker` is one of our own: the search of Wing and Gong, "Testing and Verifying Concurrent
Objects" (1993), with Lowe's memory of what was tried (2017), each key by itself.
"""

from history.checker import Operation, Undecided, Verdict, check, check_all
from history.models import FencedMutex, Once

__all__ = ["FencedMutex", "Once", "Operation", "Undecided", "Verdict", "check", "check_all"]
