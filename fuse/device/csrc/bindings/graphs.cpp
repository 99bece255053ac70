#include "bindings/graphs.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>

#include "runtime/python_bridge.h"
#include "tracing/recorder.h"

namespace fuse {
namespace {

namespace py = pybind11;

// One input; false for what no graph is recorded with (a CPU tensor that is no number).
bool read_input(PyObject* object, GraphInput& input) {
  if (THPVariable_Check(object)) {
    const at::Tensor& tensor = THPVariable_Unpack(object);
    input.tensor = tensor;
    if (tensor.is_privateuseone()) {
      input.kind = GraphInput::Kind::Device;
      return tensor.layout() == c10::kStrided;
    }
    if (!tensor.is_cpu() || tensor.dim() != 0 || tensor.is_complex()) {
      return false;
    }
    input.kind = GraphInput::Kind::Host;
    input.bits = host_bits(tensor);
    return true;
  }
  if (object == Py_None) {
    return true;
  }
  input.kind = GraphInput::Kind::Number;
  if (PyLong_Check(object)) {
    input.bits = static_cast<uint64_t>(PyLong_AsLongLong(object));
  } else if (PyFloat_Check(object)) {
    const double number = PyFloat_AS_DOUBLE(object);
    std::memcpy(&input.bits, &number, sizeof number);
  } else {
    return false;
  }
  if (PyErr_Occurred() != nullptr) {
    throw_python_error();
  }
  return true;
}

bool read_inputs(const py::list& list, std::vector<GraphInput>& inputs) {
  inputs.resize(list.size());
  for (size_t at = 0; at < inputs.size(); ++at) {
    if (!read_input(PyList_GET_ITEM(list.ptr(), static_cast<Py_ssize_t>(at)), inputs[at])) {
      return false;
    }
  }
  return true;
}

std::vector<GraphOutput> read_outputs(const py::list& list) {
  std::vector<GraphOutput> outputs(list.size());
  for (size_t at = 0; at < outputs.size(); ++at) {
    PyObject* object = PyList_GET_ITEM(list.ptr(), static_cast<Py_ssize_t>(at));
    if (THPVariable_Check(object)) {
      outputs[at].kind = GraphOutput::Kind::Tensor;
      outputs[at].tensor = THPVariable_Unpack(object);
    } else if (PyLong_CheckExact(object)) {
      outputs[at].kind = GraphOutput::Kind::Number;
      outputs[at].number = PyLong_AsLongLong(object);
    } else if (object != Py_None) {
      outputs[at].kind = GraphOutput::Kind::Other;
    }
  }
  return outputs;
}

py::list to_list(std::vector<GraphOutput>& outputs, const py::list& inputs) {
  py::list list(outputs.size());
  for (size_t at = 0; at < outputs.size(); ++at) {
    GraphOutput& output = outputs[at];
    switch (output.kind) {
      case GraphOutput::Kind::Tensor:
        list[at] =
            py::reinterpret_steal<py::object>(checked(THPVariable_Wrap(std::move(output.tensor))));
        break;
      case GraphOutput::Kind::Input: list[at] = inputs[output.input]; break;
      case GraphOutput::Kind::Number: list[at] = output.number; break;
      default: list[at] = py::none();
    }
  }
  return list;
}

py::object replay(const CompiledGraph& graph, const py::list& list) {
  std::vector<GraphInput> inputs;
  std::vector<GraphOutput> outputs;
  if (!read_inputs(list, inputs)) {
    return py::none();
  }
  switch (Recorder::global().replay(graph, inputs, outputs)) {
    case Replay::Recorded: return to_list(outputs, list);
    case Replay::Waits: return py::bool_(false);
    default: return py::none();
  }
}

void end_uncompiled() {
  Recorder::global().end_uncompiled();
}

bool begin_capture(const CompiledGraph& graph, const py::list& list) {
  std::vector<GraphInput> inputs;
  return read_inputs(list, inputs) && Recorder::global().begin_capture(graph, inputs);
}

std::string end_capture(CompiledGraph* graph, const py::list& list, const py::list& results) {
  std::vector<GraphInput> inputs;
  if (graph == nullptr || !read_inputs(list, inputs)) {
    return Recorder::global().end_capture(nullptr, {}, {});
  }
  return Recorder::global().end_capture(graph, inputs, read_outputs(results));
}

} // namespace

void add_graphs(py::module_& module) {
  using torch::wrap_pybind_function;
  py::class_<CompiledGraph>(module, "CompiledGraph")
      .def(py::init<bool>(), "A compiled graph; takes whether its calls stand alone.");
  module.def(
      "replay",
      wrap_pybind_function(replay),
      "Record a graph that is known here; None if it is not, False if it waits: its calls follow.");
  module.def(
      "end_uncompiled", wrap_pybind_function(end_uncompiled), "Calls of one that waits end here.");
  module.def("begin_capture", wrap_pybind_function(begin_capture), "What follows is a graph's.");
  module.def("end_capture", wrap_pybind_function(end_capture), "It ends: keep it, or say why not.");
}

} // namespace fuse
