#include "collectives/callbacks.h"

#include "collectives/values.h"

namespace fuse::distributed {

Callbacks::~Callbacks() {
  // The group's thread may be the last one to let go of it, while Python is being taken down: one
  // small object a group is leaked instead of asking for the GIL then.
  object_.release();
}

const DeviceValues& Callbacks::values() {
  if (values_ == nullptr) {
    py::gil_scoped_acquire gil;
    py::object capsule = object_.attr("values")();
    values_ =
        static_cast<const DeviceValues*>(PyCapsule_GetPointer(capsule.ptr(), DeviceValues::kName));
    if (values_ == nullptr) {
      throw py::error_already_set();
    }
    read_device_values_by(*values_);
  }
  return *values_;
}

std::string Callbacks::line() {
  py::gil_scoped_acquire gil;
  return py::cast<std::string>(object_.attr("line")());
}

bool Callbacks::uses_runtime() {
  py::gil_scoped_acquire gil;
  return py::cast<bool>(object_.attr("uses_runtime")());
}

void Callbacks::run(Call& call) {
  py::gil_scoped_acquire gil;
  py::list sources;
  for (const Source& source : call.sources) {
    PyObject* array = source.taken ? values_->array(source.taken) : nullptr;
    sources.append(array != nullptr ? py::reinterpret_steal<py::object>(array) : [&] {
      at::Tensor flat;
      {
        py::gil_scoped_release released;
        flat = host_of(source);
      }
      return py::cast(flat);
    }());
  }
  py::list shapes;
  for (const Target& target : call.targets) {
    shapes.append(py::cast(target.tensor.sizes().vec()));
  }
  // Where only the root has sources, the others say how long they are.
  std::vector<int64_t> counts;
  for (const Source& source : call.sources) {
    counts.push_back(source.elements);
  }
  if (call.kind == Kind::Scatter) {
    const auto ranks = py::cast<size_t>(object_.attr("size"));
    counts.assign(ranks, call.targets[0].tensor.numel());
  }
  const c10::ScalarType dtype =
      call.kind == Kind::Scatter ? call.targets[0].tensor.scalar_type() : call.sources[0].dtype;
  py::sequence results = object_.attr("run")(
      kind_name(call.kind),
      reduction_name(call.reduction),
      call.root,
      call.parts,
      dtype_name(dtype),
      sources,
      counts,
      shapes,
      call.sent,
      call.received,
      call.most);
  for (size_t at = 0; at < call.targets.size(); ++at) {
    values_->fulfil_array(call.targets[at].promised, py::object(results[at]).ptr());
  }
}

c10::intrusive_ptr<c10d::Backend> Callbacks::split(
    const c10::intrusive_ptr<c10d::Store>& store,
    int rank,
    int size,
    std::chrono::milliseconds timeout,
    const std::string& name,
    const std::vector<int64_t>& ranks) {
  py::gil_scoped_acquire gil;
  return py::cast<c10::intrusive_ptr<c10d::Backend>>(
      object_.attr("split")(store, rank, size, timeout.count(), name, ranks));
}

} // namespace fuse::distributed
