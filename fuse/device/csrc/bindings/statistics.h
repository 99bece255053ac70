// Counters of the core, as objects of Python's.
#pragma once

#include <pybind11/pybind11.h>

namespace fuse {

// Adds the functions that read and reset counters to the module.
void add_statistics(pybind11::module_& module);

} // namespace fuse
