#include "device/graphs.h"

#include <torch/csrc/Exceptions.h>
#include <torch/csrc/autograd/python_variable.h>

#include <cstring>

#include "device/python_bridge.h"
#include "recorder/recorder.h"

namespace fuse {
namespace {

constexpr const char* kCapsule = "fuse.CompiledGraph";

CompiledGraph& graph_of(PyObject* capsule) {
  void* graph = PyCapsule_GetPointer(capsule, kCapsule);
  if (graph == nullptr) {
    throw_python_error();
  }
  return *static_cast<CompiledGraph*>(graph);
}

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

bool read_inputs(PyObject* list, std::vector<GraphInput>& inputs) {
  TORCH_CHECK(PyList_Check(list), "a graph's inputs are a list");
  inputs.resize(static_cast<size_t>(PyList_GET_SIZE(list)));
  for (size_t at = 0; at < inputs.size(); ++at) {
    if (!read_input(PyList_GET_ITEM(list, static_cast<Py_ssize_t>(at)), inputs[at])) {
      return false;
    }
  }
  return true;
}

std::vector<GraphOutput> read_outputs(PyObject* list) {
  TORCH_CHECK(PyList_Check(list), "a graph's results are a list");
  std::vector<GraphOutput> outputs(static_cast<size_t>(PyList_GET_SIZE(list)));
  for (size_t at = 0; at < outputs.size(); ++at) {
    PyObject* object = PyList_GET_ITEM(list, static_cast<Py_ssize_t>(at));
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

PyRef to_list(std::vector<GraphOutput>& outputs, PyObject* inputs) {
  PyRef list = PyRef::steal(checked(PyList_New(static_cast<Py_ssize_t>(outputs.size()))));
  for (size_t at = 0; at < outputs.size(); ++at) {
    PyObject* item = nullptr;
    switch (outputs[at].kind) {
      case GraphOutput::Kind::Tensor:
        item = checked(THPVariable_Wrap(std::move(outputs[at].tensor)));
        break;
      case GraphOutput::Kind::Input:
        item = PyList_GET_ITEM(inputs, static_cast<Py_ssize_t>(outputs[at].input));
        Py_INCREF(item);
        break;
      case GraphOutput::Kind::Number: item = make_int(outputs[at].number).release(); break;
      default: item = Py_None; Py_INCREF(item);
    }
    PyList_SET_ITEM(list.get(), static_cast<Py_ssize_t>(at), item);
  }
  return list;
}

void check_count(Py_ssize_t count, Py_ssize_t expected) {
  TORCH_CHECK(count == expected, "expected ", expected, " arguments, got ", count);
}

} // namespace

PyObject* make_graph(PyObject*, PyObject* alone) {
  HANDLE_TH_ERRORS
  auto graph = std::make_unique<CompiledGraph>(alone == Py_True);
  PyObject* capsule = checked(PyCapsule_New(graph.get(), kCapsule, [](PyObject* object) {
    delete static_cast<CompiledGraph*>(PyCapsule_GetPointer(object, kCapsule));
  }));
  graph.release();
  return capsule;
  END_HANDLE_TH_ERRORS
}

PyObject* replay_graph(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  check_count(count, 2);
  std::vector<GraphInput> inputs;
  std::vector<GraphOutput> outputs;
  if (!read_inputs(arguments[1], inputs) ||
      !Recorder::global().replay(graph_of(arguments[0]), inputs, outputs)) {
    Py_RETURN_NONE;
  }
  return to_list(outputs, arguments[1]).release();
  END_HANDLE_TH_ERRORS
}

PyObject* begin_capture(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  check_count(count, 2);
  std::vector<GraphInput> inputs;
  return PyBool_FromLong(
      read_inputs(arguments[1], inputs) &&
      Recorder::global().begin_capture(graph_of(arguments[0]), inputs));
  END_HANDLE_TH_ERRORS
}

PyObject* end_capture(PyObject*, PyObject* const* arguments, Py_ssize_t count) {
  HANDLE_TH_ERRORS
  check_count(count, 3);
  CompiledGraph* graph = arguments[0] == Py_None ? nullptr : &graph_of(arguments[0]);
  std::vector<GraphInput> inputs;
  std::vector<GraphOutput> outputs;
  if (graph != nullptr) {
    if (!read_inputs(arguments[1], inputs)) {
      graph = nullptr;
    }
    outputs = read_outputs(arguments[2]);
  }
  return make_string(Recorder::global().end_capture(graph, inputs, outputs)).release();
  END_HANDLE_TH_ERRORS
}

} // namespace fuse
