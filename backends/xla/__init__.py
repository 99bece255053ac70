"""The one package that knows JAX, whose version is looked at before anything of it is used."""

import jax

from fuse import versions

versions.check("jax", jax.__version__)
