// The Python module fuse.distributed._native.
#include <pybind11/chrono.h>
#include <pybind11/stl.h>

#include "process_group/group.h"

namespace fuse::distributed {
namespace {

c10::intrusive_ptr<Group> make_group(
    const c10::intrusive_ptr<c10d::Store>& store,
    int rank,
    int size,
    std::chrono::milliseconds timeout,
    std::string name,
    std::vector<int64_t> ranks,
    bool simulated,
    py::object callbacks) {
  return c10::make_intrusive<Group>(
      store,
      rank,
      size,
      timeout,
      std::move(name),
      std::move(ranks),
      simulated,
      std::move(callbacks));
}

} // namespace
} // namespace fuse::distributed

PYBIND11_MODULE(_native, module) {
  module.doc() = "Native part of fuse.distributed.";
  py::module_::import("torch.distributed"); // the base class
  using fuse::distributed::Group;
  using fuse::distributed::GroupOptions;
  py::class_<GroupOptions, c10d::Backend::Options, c10::intrusive_ptr<GroupOptions>>(
      module, "GroupOptions")
      .def("__deepcopy__", [](const GroupOptions& self, const py::object&) {
        return c10::make_intrusive<GroupOptions>(self);
      });
  py::class_<Group, c10d::Backend, c10::intrusive_ptr<Group>>(module, "Group")
      .def_property_readonly("options", [](Group& self) {
        return c10::static_intrusive_pointer_cast<GroupOptions>(self.getBackendOptions());
      });
  module.def("make_group", &fuse::distributed::make_group, "A group's backend.");
  module.def(
      "own_address",
      &fuse::distributed::own_address,
      "The address by which other hosts reach this one.");
  module.def(
      "leave_all",
      &fuse::distributed::leave_all,
      py::call_guard<py::gil_scoped_release>(),
      "Tells every group's other ranks how this process ends.");
}
