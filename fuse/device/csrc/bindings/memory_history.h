// The history of memory, as objects of Python's.
#pragma once

#include <pybind11/pybind11.h>

namespace fuse {

// Adds the functions that keep and read the history, and those of pinned memory's statistics.
void add_memory_history(pybind11::module_& module);

} // namespace fuse
