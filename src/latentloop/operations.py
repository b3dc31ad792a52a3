"""The table of operations. A new one is a row here; the paper's tasks stay as they are."""

import operator
from collections.abc import Callable
from typing import Any

RESULTS: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
"""What each operation gives, before it is reduced modulo p; works on whole arrays."""
OPERATIONS = tuple(RESULTS)
"""Operations by their code, which is how graphs store them."""
