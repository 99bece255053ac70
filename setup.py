"""What ``pyproject.toml`` cannot say: wheels with the native libraries inside.

With ``TORCH_FUSE_WHEEL=1`` (``make wheel``) the wheel holds builds for the PyTorch and Python that
make it, and is named after them: ``+pt213`` and a platform's tag, as PyTorch's extensions are. Else
it is a package of Python and C++ sources, built at their first use.
"""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py


class Build(build_py):
    """Adds the libraries to the package, built from what has just been put together."""

    def run(self) -> None:  # noqa: D102
        super().run()
        if self.editable_mode:
            return
        root = Path(self.build_lib).resolve()
        into = str(root / "fuse/native/shipped")
        # The package itself builds them; without its registration with PyTorch, which is not asked.
        environment = {**os.environ, "PYTHONPATH": str(root), "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
        command = [sys.executable, "-m", "fuse.commands.cli", "build", "--into", into]
        subprocess.run(command, cwd=root, env=environment, check=True)


class Native(Distribution):
    """A distribution for one platform and one interpreter."""

    def has_ext_modules(self) -> bool:  # noqa: D102
        return True


if os.environ.get("TORCH_FUSE_WHEEL") == "1":
    tag = "+pt" + "".join(version("torch").partition("+")[0].split(".")[:2])
    setup(distclass=Native, cmdclass={"build_py": Build}, options={"egg_info": {"tag_build": tag}})
else:
    setup()
