#include "runtime/python_bridge.h"

#include <c10/util/Exception.h>
#include <torch/csrc/Exceptions.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

namespace fuse {

namespace {
PyObject* engine_object = nullptr;

struct ReleaseQueue {
  std::mutex mutex;
  std::vector<PyObject*> objects;
};

ReleaseQueue& release_queue() {
  static auto* queue = new ReleaseQueue; // outlives static destruction of tensors
  return *queue;
}

const char* plain_name(c10::ScalarType dtype) {
  switch (dtype) {
    case c10::ScalarType::Byte: return "uint8";
    case c10::ScalarType::Char: return "int8";
    case c10::ScalarType::Short: return "int16";
    case c10::ScalarType::Int: return "int32";
    case c10::ScalarType::Long: return "int64";
    case c10::ScalarType::Half: return "float16";
    case c10::ScalarType::Float: return "float32";
    case c10::ScalarType::Double: return "float64";
    case c10::ScalarType::ComplexHalf: return "complex32";
    case c10::ScalarType::ComplexFloat: return "complex64";
    case c10::ScalarType::ComplexDouble: return "complex128";
    case c10::ScalarType::Bool: return "bool";
    case c10::ScalarType::BFloat16: return "bfloat16";
    case c10::ScalarType::UInt16: return "uint16";
    case c10::ScalarType::UInt32: return "uint32";
    case c10::ScalarType::UInt64: return "uint64";
    case c10::ScalarType::Float8_e5m2: return "float8_e5m2";
    case c10::ScalarType::Float8_e4m3fn: return "float8_e4m3fn";
    case c10::ScalarType::Float8_e5m2fnuz: return "float8_e5m2fnuz";
    case c10::ScalarType::Float8_e4m3fnuz: return "float8_e4m3fnuz";
    case c10::ScalarType::Float8_e8m0fnu: return "float8_e8m0fnu";
    default: break;
  }
  // From PyTorch 2.15 on; before, the enumeration has no name for it.
  const char* name = c10::toString(dtype);
  return std::strcmp(name, "BComplex32") == 0 ? "bcomplex32" : name;
}
} // namespace

void release_later(PyObject* object) {
  if (process_state.load(std::memory_order_relaxed) != Process::Running) {
    return; // the interpreter is going away, or the object is the parent's: leaked
  }
  ReleaseQueue& queue = release_queue();
  std::lock_guard<std::mutex> guard(queue.mutex);
  queue.objects.push_back(object);
}

void drain_releases() {
  std::vector<PyObject*> objects;
  {
    ReleaseQueue& queue = release_queue();
    std::lock_guard<std::mutex> guard(queue.mutex);
    objects.swap(queue.objects);
  }
  for (PyObject* object : objects) {
    Py_DECREF(object);
  }
}

void set_engine(PyObject* engine) {
  Py_XINCREF(engine);
  Py_XDECREF(std::exchange(engine_object, engine));
}

void throw_python_error() {
  python_error error;
  error.persist();
  throw error;
}

void clear_failure(python_error& error) {
  error.restore();
  if (PyErr_ExceptionMatches(PyExc_Exception) == 0) {
    throw_python_error();
  }
  PyErr_Clear();
}

PyObject* checked(PyObject* object) {
  if (object == nullptr) {
    throw_python_error();
  }
  return object;
}

namespace {

// While one lives, Dynamo leaves this thread's frames alone: the engine's, and JAX's below them.
// Called from a function that is being compiled, they would be compiled with it. 0.1 us.
class WithoutDynamo {
 public:
  WithoutDynamo()
      : setter_(setter()), before_(PyRef::steal(checked(PyObject_CallOneArg(setter_, Py_None)))) {}
  ~WithoutDynamo() {
    if (before_.get() != Py_None) {
      PyObject *type = nullptr, *value = nullptr, *traceback = nullptr;
      PyErr_Fetch(&type, &value, &traceback);
      PyRef present = PyRef::steal(PyObject_CallOneArg(setter_, before_.get()));
      if (!present) {
        PyErr_WriteUnraisable(setter_);
      }
      PyErr_Restore(type, value, traceback);
    }
  }
  WithoutDynamo(const WithoutDynamo&) = delete;
  WithoutDynamo& operator=(const WithoutDynamo&) = delete;

 private:
  // Exchanges the thread's callback for frames.
  static PyObject* setter() {
    static PyObject* function = [] {
      PyRef module = PyRef::steal(checked(PyImport_ImportModule("torch._C._dynamo.eval_frame")));
      return checked(PyObject_GetAttrString(module.get(), "set_eval_frame"));
    }();
    return function;
  }
  PyObject* setter_; // kept for ever; a destructor may not look for it, which may throw
  PyRef before_;
};

} // namespace

PyRef call_engine(const char* method, PyRef arguments) {
  TORCH_CHECK(engine_object != nullptr, "the tpu device is not initialised: call torch.tpu.init()");
  const WithoutDynamo plain;
  PyRef bound = PyRef::steal(checked(PyObject_GetAttrString(engine_object, method)));
  return PyRef::steal(checked(PyObject_CallObject(bound.get(), arguments.get())));
}

void raise_signals() {
  if (Py_IsInitialized() == 0) {
    return;
  }
  GilGuard gil;
  if (PyErr_CheckSignals() != 0) {
    throw_python_error();
  }
}

PyRef make_int(int64_t value) {
  return PyRef::steal(checked(PyLong_FromLongLong(value)));
}

PyRef make_string(const std::string& text) {
  return PyRef::steal(
      checked(PyUnicode_FromStringAndSize(text.data(), static_cast<Py_ssize_t>(text.size()))));
}

namespace {

template <typename Int>
PyRef tuple_of(c10::ArrayRef<Int> values) {
  PyRef tuple = PyRef::steal(checked(PyTuple_New(static_cast<Py_ssize_t>(values.size()))));
  for (size_t index = 0; index < values.size(); ++index) {
    PyTuple_SET_ITEM(
        tuple.get(), static_cast<Py_ssize_t>(index), make_int(values[index]).release());
  }
  return tuple;
}

} // namespace

PyRef int_tuple(c10::ArrayRef<int64_t> values) {
  return tuple_of(values);
}

PyRef int_tuple(c10::ArrayRef<int32_t> values) {
  return tuple_of(values);
}

PyObject* dtype_name(c10::ScalarType dtype) {
  static std::array<PyObject*, 128> names{};
  PyObject*& name = names[static_cast<size_t>(dtype)];
  if (name == nullptr) {
    TORCH_CHECK_NOT_IMPLEMENTED(
        !c10::isQIntType(dtype),
        "the tpu device has no quantized tensors; call .dequantize() first or keep the tensor on "
        "the "
        "CPU");
    name = checked(PyUnicode_InternFromString(plain_name(dtype)));
  }
  return name;
}

} // namespace fuse
