"""NumPy rules, one file an operator family. Importing this package fills the table."""

import fuse.backends.numpy.rules.arithmetic  # noqa: F401
import fuse.backends.numpy.rules.comparison  # noqa: F401
import fuse.backends.numpy.rules.factories  # noqa: F401
import fuse.backends.numpy.rules.pointwise  # noqa: F401
