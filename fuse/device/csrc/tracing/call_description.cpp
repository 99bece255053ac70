#include "tracing/call_description.h"

#include <torch/csrc/Dtype.h>

#include "runtime/python_bridge.h"
#include "tracing/cpu_warnings.h"

namespace fuse {

namespace {

PyRef make_list() {
  return PyRef::steal(checked(PyList_New(0)));
}

void append(const PyRef& list, const PyRef& item) {
  if (PyList_Append(list.get(), item.get()) != 0) {
    throw_python_error();
  }
}

PyRef make_float(double number) {
  return PyRef::steal(checked(PyFloat_FromDouble(number)));
}

PyRef make_unsigned(uint64_t number) {
  return PyRef::steal(checked(PyLong_FromUnsignedLongLong(number)));
}

PyRef make_bool(bool truth) {
  return PyRef::borrow(truth ? Py_True : Py_False);
}

PyRef make_complex(c10::complex<double> number) {
  return PyRef::steal(checked(PyComplex_FromDoubles(number.real(), number.imag())));
}

PyRef layout_to_python(uint32_t id) {
  const Layout& layout = LayoutTable::global().get(id);
  return pack(PyRef::borrow(dtype_name(layout.dtype)), int_tuple(layout.shape));
}

// New values are numbered from `value` on, which ends at the first number left.
PyRef tensors_to_python(const std::vector<NewTensor>& tensors, int64_t& value) {
  PyRef list = make_list();
  for (const NewTensor& spec : tensors) {
    append(
        list,
        pack(
            make_int(value++),
            PyRef::borrow(dtype_name(spec.dtype)),
            int_tuple(spec.sizes),
            int_tuple(spec.strides),
            layout_to_python(spec.layout)));
  }
  return list;
}

PyRef writes_to_python(const TrieNode& node, int64_t& value) {
  PyRef list = make_list();
  for (const Write& write : node.writes) {
    PyRef resized = PyRef::borrow(Py_None);
    for (const Resize& resize : node.resizes) {
      if (resize.operand == write.operand) {
        resized = pack(int_tuple(resize.sizes), int_tuple(resize.strides));
      }
    }
    append(
        list,
        pack(
            make_int(write.operand),
            make_int(value++),
            layout_to_python(write.layout),
            std::move(resized)));
  }
  return list;
}

PyRef results_to_python(const std::vector<Result>& results) {
  PyRef list = make_list();
  for (const Result& result : results) {
    append(
        list,
        pack(
            make_int(static_cast<int64_t>(result.kind)),
            make_int(result.index),
            make_int(result.count)));
  }
  return list;
}

// The position of the call's next number among those it carries.
PyRef make_place(size_t& scalar) {
  return make_int(static_cast<int64_t>(scalar++));
}

PyRef tensor_to_python(const at::Tensor& tensor, size_t& operand, size_t& scalar) {
  if (tensor.is_privateuseone()) {
    ++scalar; // its offset
    return pack(make_string("T"), make_int(static_cast<int64_t>(operand++)));
  }
  const c10::Scalar number = tensor.item();
  PyRef plain;
  PyRef place = PyRef::borrow(Py_None);
  if (number.isBoolean()) {
    plain = make_bool(number.toBool());
  } else if (number.isComplex()) {
    plain = make_complex(number.toComplexDouble());
  } else if (number.type() == c10::ScalarType::UInt64) { // past int64, where nothing varies
    plain = make_unsigned(number.toUInt64());
  } else {
    plain = number.isFloatingPoint() ? make_float(number.toDouble()) : make_int(number.toLong());
    place = make_place(scalar);
  }
  return pack(
      make_string("H"),
      PyRef::borrow(dtype_name(tensor.scalar_type())),
      std::move(plain),
      make_bool(tensor.unsafeGetTensorImpl()->is_wrapped_number()),
      std::move(place));
}

// A new tensor with another dtype and other strides, both dense.
void make_otherwise(NewTensor& spec, PyObject* dtype, PyObject* strides, size_t& nbytes) {
  nbytes -= spec.nbytes;
  spec.dtype = reinterpret_cast<THPDtype*>(dtype)->scalar_type;
  for (size_t dim = 0; dim < spec.strides.size(); ++dim) {
    spec.strides[dim] = PyLong_AsLongLong(PyTuple_GetItem(strides, static_cast<Py_ssize_t>(dim)));
  }
  c10::SmallVector<int64_t, 6> shape;
  const bool dense = physical_shape(spec.sizes, spec.strides, shape);
  TORCH_INTERNAL_ASSERT(dense);
  spec.layout = LayoutTable::global().intern(spec.dtype, shape);
  spec.nbytes = bytes_in(spec.layout);
  nbytes += spec.nbytes;
}

// What the engine made of a call: see Engine.describe.
void take_description(TrieNode& node, PyObject* answer) {
  node.record = PyRef::borrow(PyTuple_GetItem(answer, 0));
  node.random_blocks = static_cast<uint32_t>(PyLong_AsLong(PyTuple_GetItem(answer, 1)));
  PyObject* pinned = PyTuple_GetItem(answer, 2);
  for (Py_ssize_t at = 0; at < PyTuple_Size(pinned); ++at) {
    auto place = static_cast<size_t>(PyLong_AsLong(PyTuple_GetItem(pinned, at)));
    node.scalars[place].pinned = true;
  }
  PyObject* varying = PyTuple_GetItem(answer, 3);
  for (Py_ssize_t at = 0; at < PyTuple_Size(varying); ++at) {
    PyObject* item = PyTuple_GetItem(varying, at);
    ScalarPlace& place = node.scalars[static_cast<size_t>(PyLong_AsLong(PyTuple_GetItem(item, 0)))];
    Reach reach(PyTuple_GetItem(item, 1));
    if (reach.holds({place.bits, place.kind})) {
      place.vary(std::move(reach));
    }
  }
  PyObject* made = PyTuple_GetItem(answer, 4);
  for (Py_ssize_t at = 0; at < PyTuple_Size(made); ++at) {
    PyObject* item = PyTuple_GetItem(made, at);
    auto number = static_cast<size_t>(PyLong_AsLong(PyTuple_GetItem(item, 0)));
    make_otherwise(
        node.tensors[number], PyTuple_GetItem(item, 1), PyTuple_GetItem(item, 2), node.nbytes);
  }
  if (PyErr_Occurred() != nullptr) {
    throw_python_error();
  }
}

PyRef to_python(const c10::IValue& value, OpInfo::Kind kind, size_t& operand, size_t& scalar) {
  // ("T", operand) device tensor, ("H", dtype, value, wrapped, scalar) host tensor,
  // ("S", value, scalar) number that may vary, ("D", name) dtype, ("X",) dropped; else itself.
  const bool varies = kind == OpInfo::Kind::Scalar;
  if (value.isTensor() && value.toTensor().defined()) {
    return tensor_to_python(value.toTensor(), operand, scalar);
  }
  if (value.isNone() || value.isTensor()) {
    return PyRef::borrow(Py_None);
  }
  if (value.isInt() && kind == OpInfo::Kind::Dtype) {
    const auto dtype = static_cast<c10::ScalarType>(value.toInt());
    return pack(make_string("D"), PyRef::borrow(dtype_name(dtype)));
  }
  if (value.isInt() || value.isDouble()) {
    PyRef number = value.isInt() ? make_int(value.toInt()) : make_float(value.toDouble());
    return varies ? pack(make_string("S"), std::move(number), make_place(scalar))
                  : std::move(number);
  }
  if (value.isUnsigned()) {
    return make_unsigned(value.toUInt());
  }
  if (value.isBool()) {
    return make_bool(value.toBool());
  }
  if (value.isComplexDouble()) {
    return make_complex(value.toComplexDouble());
  }
  if (value.isString()) {
    return make_string(value.toStringRef());
  }
  if (value.isIntList() && !varies) {
    return int_tuple(c10::IntArrayRef(value.toIntVector()));
  }
  if (value.isList()) {
    PyRef list = make_list();
    for (const c10::IValue& item : value.toListRef()) {
      append(list, to_python(item, kind, operand, scalar));
    }
    return list;
  }
  return pack(make_string("X")); // device or generator: the trace needs neither
}

PyRef operands_to_python(const CallKey& key) {
  PyRef list = make_list();
  for (const Operand& operand : key.operands) {
    auto* impl = operand.tensor->unsafeGetTensorImpl();
    append(
        list,
        pack(
            make_int(operand.buffer->value),
            PyRef::borrow(dtype_name(operand.tensor->scalar_type())),
            int_tuple(impl->sizes()),
            int_tuple(impl->strides()),
            make_int(impl->storage_offset()),
            make_int(operand.scalar),
            make_bool(operand.first),
            make_bool(operand.initialised),
            layout_to_python(operand.buffer->layout)));
  }
  return list;
}

} // namespace

Refusal describe(
    TrieNode& node,
    const CallKey& key,
    const BoxedCall& call,
    int64_t first_value,
    ShapeInference& inference) {
  if (Refusal refusal = inference.infer(node, key, call)) {
    return refusal;
  }
  GilGuard gil;
  drain_releases();
  size_t operand = 0;
  size_t scalar = 0;
  const auto count = static_cast<Py_ssize_t>(call.arguments.size());
  PyRef args = PyRef::steal(checked(PyTuple_New(count)));
  for (size_t at = 0; at < call.arguments.size(); ++at) {
    PyTuple_SET_ITEM(
        args.get(),
        static_cast<Py_ssize_t>(at),
        to_python(call.arguments[at], call.info.kinds[at], operand, scalar).release());
  }
  PyRef tensors = tensors_to_python(node.tensors, first_value);
  PyRef writes = writes_to_python(node, first_value);
  const DroppedWarnings asked(""); // kernels are asked there
  PyRef answer = call_engine(
      "describe",
      pack(
          make_string(call.info.name),
          std::move(args),
          operands_to_python(key),
          std::move(tensors),
          std::move(writes),
          results_to_python(node.results)));
  if (answer.get() == Py_None) {
    return ""; // the engine knows why
  }
  take_description(node, answer.get());
  return std::nullopt;
}

} // namespace fuse
