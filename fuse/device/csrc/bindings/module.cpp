// The Python module fuse.device._core: the few calls that Python makes into the core.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <torch/csrc/Event.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Generator.h>
#include <torch/csrc/utils/pybind.h>

#include <string>
#include <tuple>
#include <vector>

#include "aten/registration.h"
#include "bindings/graphs.h"
#include "bindings/memory_history.h"
#include "bindings/statistics.h"
#include "cpu_exec/host_values.h"
#include "device/exchange.h"
#include "device/hooks.h"
#include "device/sharing.h"
#include "device/synchronize.h"
#include "runtime/copier.h"
#include "runtime/device_index.h"
#include "runtime/generator.h"
#include "runtime/memory.h"
#include "runtime/pinned.h"
#include "runtime/python_bridge.h"
#include "tracing/cpu_warnings.h"
#include "tracing/recorder.h"

namespace fuse {
namespace {

namespace py = pybind11;
using Names = std::vector<std::string>;
// An operator's: name, and the fields of OperatorRecord.
using Record = std::tuple<std::string, std::vector<int>, std::string, Names, Names>;

void initialise(
    const py::object& engine,
    int devices,
    const Names& recorded,
    const Names& composites,
    const std::vector<Record>& records) {
  set_engine(engine.ptr());
  register_hooks(devices);
  for (const auto& [name, writes, draws, numbers, flags] : records) {
    OpInfo::declare(name, {writes, draws, numbers, flags});
  }
  register_record_kernels(recorded, composites);
}

void cut(const std::string& name) {
  const CutReason reason = cut_reason_of(name);
  if (reason == CutReason::Synchronize) {
    Recorder::global().cut_all(reason);
  } else {
    Recorder::global().cut(reason);
  }
}

// Calls `self`, whatever the arguments, without running a line of Python where it does not.
PyObject* call_plainly(PyObject* self, PyObject*) {
  return PyObject_CallNoArgs(self);
}

py::object without_arguments(const py::object& function) {
  static PyMethodDef plainly{
      "call_plainly", call_plainly, METH_VARARGS, "Calls a function without its arguments."};
  return py::reinterpret_steal<py::object>(checked(PyCFunction_New(&plainly, function.ptr())));
}

py::object generator_of(int device) {
  return py::reinterpret_steal<py::object>(
      checked(THPGenerator_Wrap(default_generator(static_cast<c10::DeviceIndex>(device)))));
}

const c10::Event& event_of(py::handle object) {
  TORCH_CHECK_TYPE(
      THPEvent_Check(object.ptr()),
      "elapsed_time takes an event, and not a ",
      Py_TYPE(object.ptr())->tp_name);
  return reinterpret_cast<THPEvent*>(object.ptr())->event;
}

// PyTorch's own takes no event of a derived class.
double elapsed(py::handle first, py::handle second) {
  return event_of(first).elapsedTime(event_of(second));
}

py::object share(const at::Tensor& tensor) {
  return py::reinterpret_steal<py::object>(share_array(tensor).release());
}

at::Tensor adopt(
    const py::object& array,
    c10::ScalarType dtype,
    const std::vector<int64_t>& shape,
    int8_t device) {
  return adopt_array(array.ptr(), dtype, shape, device);
}

bool pin(const at::Tensor& tensor) {
  return PinnedAllocator::global().adopt(tensor.storage());
}

void refuse_with_texts(
    const py::object& type, const std::string& forked, const std::string& ending) {
  refuse_with(type.ptr(), forked.c_str(), ending.c_str());
  watch_forks();
}

void shut_down(bool unfinished) {
  begin_to_close();
  {
    const GilRelease released; // which a thread inside the recorder may need
    Recorder::global().wait_until_left();
  }
  begin_end(unfinished || !Copier::global().idle());
}

void add_settings(py::module_& module) {
  using torch::wrap_pybind_function;
  module.def(
      "set_mode",
      wrap_pybind_function([](int mode) { Recorder::global().set_mode(static_cast<Mode>(mode)); }),
      "0 debug, 1 strict, 2 fused; cuts first.");
  module.def(
      "set_tier",
      wrap_pybind_function(
          [](int tier) { Recorder::global().set_tier(static_cast<tiering::Setting>(tier)); }),
      "How tiers are chosen: 0 auto, 1 compiled, 2 uncompiled.");
  module.def(
      "set_limit",
      wrap_pybind_function([](size_t most) { Recorder::global().set_limit(most); }),
      "Operations after which a trace is cut.");
  module.def(
      "set_most_nodes",
      wrap_pybind_function([](size_t most) { Recorder::global().set_most_nodes(most); }),
      "Calls that the trie of known streams may hold.");
  module.def(
      "set_memory_bounds",
      set_memory_bounds,
      "Bytes that one value may have, and all together; 0: the device says when it is full.");
}

void add_recorder(py::module_& module) {
  using torch::wrap_pybind_function;
  module.def("cut", wrap_pybind_function(cut), "Cut for this reason; every stream to synchronise.");
  module.def(
      "refuse_in_graph",
      wrap_pybind_function(
          [](const std::string& what) { Recorder::global().refuse_in_graph(what); }),
      "Throw that a graph which this thread captures cannot hold this.");
  module.def("synchronize", wrap_pybind_function(synchronize), "Cut and wait for the device.");
  module.def(
      "forget",
      wrap_pybind_function([] { Recorder::global().forget(); }),
      "Drop every known stream.");
  module.def(
      "forget_soon",
      [] { Recorder::global().forget_soon(); },
      "Drop them where the next trace begins.");
  module.def(
      "is_settled",
      wrap_pybind_function([] { return Recorder::global().is_settled(); }),
      "Whether nothing is being tried or compiled.");
  module.def("infers", &DroppedWarnings::any, "Whether this thread infers what a call makes.");
}

void add_device(py::module_& module) {
  using torch::wrap_pybind_function;
  module.def(
      "get_device", [] { return static_cast<int>(current_device()); }, "The current one's index.");
  module.def(
      "set_device",
      wrap_pybind_function([](int device) { set_current_device(device); }),
      "Make a device current.");
  module.def(
      "existing_device",
      wrap_pybind_function([](int device) { return static_cast<int>(existing_index(device)); }),
      "The index of the device that a program calls by this one, which must exist.");
  module.def(
      "default_generator",
      wrap_pybind_function(generator_of),
      "A device's default torch.Generator.");
  module.def(
      "share",
      wrap_pybind_function(share),
      "The backend's array of a whole tensor, kept from donation; or None.");
  module.def(
      "value_here",
      wrap_pybind_function(fuse::value_here),
      "A tensor's value where the host has it, as a CPU tensor not to be written; or None.");
  module.def(
      "adopt",
      wrap_pybind_function(adopt),
      "A tensor of an array, from dtype, shape and device index.");
  module.def(
      "elapsed",
      wrap_pybind_function(elapsed),
      "Milliseconds from one event that times to another.");
  module.def(
      "pin",
      wrap_pybind_function(pin),
      "Pin the memory of a CPU tensor where it lies; whether that was possible.");
}

} // namespace
} // namespace fuse

PYBIND11_MODULE(_core, module) {
  module.doc() = "Native core of fuse.";
  module.def(
      "initialise",
      torch::wrap_pybind_function(fuse::initialise),
      "Register kernels and hooks; takes the engine.");
  module.def(
      "register_whole_kernels",
      torch::wrap_pybind_function(fuse::register_whole_kernels),
      "Has overloads that are composed run whole where their calls run uncompiled.");
  module.def(
      "overloads_of",
      torch::wrap_pybind_function(fuse::overloads_of),
      "The aten overloads that have a kernel of their own for a dispatch key.");
  module.def("refuse_with", fuse::refuse_with_texts, "The error in a forked child and at the end.");
  module.def("shut_down", fuse::shut_down, "The end begins; takes whether work is unfinished.");
  module.def(
      "without_arguments",
      fuse::without_arguments,
      "What calls a function and drops the arguments, not itself a function of Python's.");
  fuse::add_settings(module);
  fuse::add_recorder(module);
  fuse::add_device(module);
  fuse::add_statistics(module);
  fuse::add_memory_history(module);
  fuse::add_graphs(module);
  auto* table = const_cast<fuse::DeviceValues*>(&fuse::device_values()); // capsules hold void*
  module.attr("values") = pybind11::capsule(table, fuse::DeviceValues::kName);
}
