import sys
from pathlib import Path

import hypothesis

sys.path.insert(0, str(Path(__file__).parent))
hypothesis.settings.register_profile("house", deadline=None, derandomize=True, max_examples=60)
hypothesis.settings.load_profile("house")
