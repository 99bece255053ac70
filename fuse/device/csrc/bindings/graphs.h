// Graphs of torch.compile, as Python calls them.
#pragma once

#include <pybind11/pybind11.h>

namespace fuse {

// Adds a graph's class, and what replays and captures one, to the module.
void add_graphs(pybind11::module_& module);

} // namespace fuse
