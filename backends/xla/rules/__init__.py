"""XLA rules, one file an operator family. Importing this package fills the table."""

import fuse.backends.xla.rules.activation  # noqa: F401
import fuse.backends.xla.rules.pooling  # noqa: F401
import fuse.backends.xla.rules.adaptive_pooling  # noqa: F401
import fuse.backends.xla.rules.arithmetic  # noqa: F401
import fuse.backends.xla.rules.attention  # noqa: F401
import fuse.backends.xla.rules.comparison  # noqa: F401
import fuse.backends.xla.rules.convolution  # noqa: F401
import fuse.backends.xla.rules.embedding  # noqa: F401
import fuse.backends.xla.rules.factories  # noqa: F401
import fuse.backends.xla.rules.indexing  # noqa: F401
import fuse.backends.xla.rules.matmul  # noqa: F401
import fuse.backends.xla.rules.normalization  # noqa: F401
import fuse.backends.xla.rules.padding  # noqa: F401
import fuse.backends.xla.rules.pointwise  # noqa: F401
import fuse.backends.xla.rules.random  # noqa: F401
import fuse.backends.xla.rules.reduction  # noqa: F401
import fuse.backends.xla.rules.scatter  # noqa: F401
import fuse.backends.xla.rules.shape  # noqa: F401
import fuse.backends.xla.rules.slicing  # noqa: F401
import fuse.backends.xla.rules.softmax  # noqa: F401
import fuse.backends.xla.rules.special  # noqa: F401
import fuse.backends.xla.rules.scan  # noqa: F401
import fuse.backends.xla.rules.sorting  # noqa: F401
import fuse.backends.xla.rules.loss  # noqa: F401
import fuse.backends.xla.rules.distance  # noqa: F401
