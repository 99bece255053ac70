// The Python module fuse.distributed._native.
#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include "group.h"

namespace fuse::distributed {
namespace {

c10::intrusive_ptr<c10d::Backend> make_group(
    const c10::intrusive_ptr<c10d::Store>& store,
    int rank,
    int size,
    std::chrono::milliseconds timeout,
    std::string name,
    std::vector<int64_t> ranks,
    py::object host) {
  return c10::make_intrusive<Group>(
      store, rank, size, timeout, std::move(name), std::move(ranks), std::move(host));
}

} // namespace
} // namespace fuse::distributed

PYBIND11_MODULE(_native, module) {
  module.doc() = "Native part of fuse.distributed.";
  module.def("make_group", &fuse::distributed::make_group, "A group's backend.");
  module.def(
      "leave_all",
      &fuse::distributed::leave_all,
      py::call_guard<py::gil_scoped_release>(),
      "Tells every group's other ranks how this process ends.");
}
