// A call never seen before: infer its outputs once, describe it to Python, grow the trie.
#include <ATen/EmptyTensor.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/List.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/strides.h>
#include <torch/csrc/Exceptions.h>

#include <unordered_map>
#include <unordered_set>

#include "recorder.h"

namespace fuse {

namespace {

at::Tensor to_meta(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_privateuseone()) {
    return tensor;
  }
  return at::Tensor(
      at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type()));
}

c10::IValue to_meta(const c10::IValue& value) {
  if (value.isTensor()) {
    return to_meta(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> list;
    for (const c10::IValue& item : value.toListRef()) {
      list.push_back(to_meta(item.toTensor()));
    }
    return list;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> list;
    for (const c10::IValue& item : value.toListRef()) {
      list.push_back(item.isTensor() ? std::make_optional(to_meta(item.toTensor())) : std::nullopt);
    }
    return list;
  }
  if (value.isDevice()) {
    return c10::Device(c10::DeviceType::Meta);
  }
  if (value.isGenerator()) {
    return {};
  }
  return value;
}

NewTensor spec_of(const at::Tensor& meta) {
  NewTensor spec;
  spec.dtype = meta.scalar_type();
  spec.sizes.assign(meta.sizes().begin(), meta.sizes().end());
  c10::SmallVector<int64_t, 6> shape;
  if (physical_shape(meta.sizes(), meta.strides(), shape)) {
    spec.strides.assign(meta.strides().begin(), meta.strides().end());
  } else {
    // Overlapping or gapped results have no place in a dense array: row-major instead.
    auto strides = c10::contiguous_strides(meta.sizes());
    spec.strides.assign(strides.begin(), strides.end());
    shape.assign(meta.sizes().begin(), meta.sizes().end());
  }
  spec.nbytes = static_cast<size_t>(meta.numel()) * meta.itemsize();
  spec.layout = LayoutTable::global().intern(spec.dtype, shape);
  return spec;
}

// `layout_after_write` where out= gives `tensor` other sizes, perhaps inside a larger storage.
uint32_t layout_after_resize(
    const at::Tensor& tensor, const Buffer& buffer, const NewTensor& resized) {
  const size_t start = static_cast<size_t>(tensor.storage_offset()) * tensor.element_size();
  if (start == 0 && resized.nbytes >= buffer.nbytes) {
    c10::SmallVector<int64_t, 6> shape;
    physical_shape(resized.sizes, resized.strides, shape);
    return LayoutTable::global().intern(tensor.scalar_type(), shape);
  }
  return layout_of_part(
      buffer, tensor.scalar_type(), std::max(buffer.nbytes, start + resized.nbytes));
}

PyRef layout_to_python(uint32_t id) {
  const Layout& layout = LayoutTable::global().get(id);
  return pack(PyRef::borrow(dtype_name(layout.dtype)), make_tuple(layout.shape));
}

} // namespace

namespace {

// Meta kernels that are laxer than the CPU's give an in-place operator a larger result.
bool resizes_in_place(
    const c10::OperatorHandle& op,
    const OpInfo& info,
    c10::ArrayRef<c10::IValue> arguments,
    const torch::jit::Stack& after) {
  for (size_t at = 0; at < arguments.size(); ++at) {
    if (!info.written[at] || !arguments[at].isTensor() || !arguments[at].toTensor().defined()) {
      continue;
    }
    const at::Tensor& target = arguments[at].toTensor();
    bool in_place = !op.schema().arguments()[at].kwarg_only();
    for (size_t other = 0; other < at; ++other) { // out= may be an input too
      in_place |= arguments[other].isTensor() && arguments[other].toTensor().is_same(target);
    }
    if (in_place && target.sizes() != after[at].toTensor().sizes()) {
      return true;
    }
  }
  return false;
}

// Whether half-precision statistics are kept in single precision: where a parameter is.
bool has_wide_parameter(c10::ArrayRef<c10::IValue> arguments) {
  for (const c10::IValue& value : arguments.slice(1)) {
    if (value.isTensor() && value.toTensor().defined() &&
        value.toTensor().scalar_type() == at::kFloat) {
      return true;
    }
  }
  return false;
}

at::Tensor column_major_like(const at::Tensor& meta) {
  return meta.mT().clone(at::MemoryFormat::Contiguous).mT();
}

// Pointwise operators: those tagged so, and those that PyTorch forgot.
bool is_pointwise(const c10::OperatorHandle& op, const std::string& name) {
  static const auto* untagged = new std::unordered_set<std::string>{
      "where.self_out",
      "elu.out",
      "gelu.out",
      "hardsigmoid.out",
      "hardswish.out",
      "hardtanh.out",
      "huber_loss.out",
      "leaky_relu.out",
      "mse_loss.out",
      "smooth_l1_loss.out",
      "softplus.out",
      "softshrink.out",
      "threshold.out",
  };
  return op.hasTag(at::Tag::pointwise) || untagged->count(name) != 0;
}

// What PyTorch's pointwise kernels allocate: `meta`'s sizes, in the order in memory of the
// tensors they read.
at::Tensor laid_out_by_operands(
    const at::Tensor& meta, const OpInfo& info, const torch::jit::Stack& arguments) {
  at::TensorIteratorConfig config;
  config.check_all_same_dtype(false).set_check_mem_overlap(false);
  config.declare_static_dtype_and_device(meta.scalar_type(), c10::kMeta);
  config.add_owned_output(at::Tensor());
  size_t read = 0;
  for (size_t at = 0; at < arguments.size(); ++at) {
    if (!info.written[at] && arguments[at].isTensor() && arguments[at].toTensor().is_meta()) {
      if (arguments[at].toTensor().is_complex() && !meta.is_complex()) {
        return meta; // abs and angle go through a complex result of their own
      }
      config.add_owned_const_input(arguments[at].toTensor());
      ++read;
    }
  }
  if (read == 0) {
    return meta;
  }
  at::Tensor result = config.build().output(0);
  return result.sizes() == meta.sizes() ? result : meta;
}

// Which tensors, counted among those written, LAPACK's wrappers leave column-major where they
// give an empty out= its size; a bit for each. PyTorch's meta kernels say row-major.
uint32_t column_major_outs(const std::string& name) {
  static const auto* table = new std::unordered_map<std::string, uint32_t>{
      {"cholesky_inverse.out", 1},
      {"geqrf.a", 1},
      {"linalg_eig.out", 2},
      {"linalg_eigh.eigvals", 2},
      {"_linalg_eigh.eigenvalues", 2},
      {"linalg_householder_product.out", 1},
      {"linalg_ldl_factor_ex.out", 1},
      {"linalg_ldl_solve.out", 1},
      {"linalg_lu_factor_ex.out", 1},
      {"linalg_lu_solve.out", 1},
      {"linalg_qr.out", 3},
      {"ormqr.out", 1},
      {"triangular_solve.X", 3},
  };
  const auto found = table->find(name);
  return found == table->end() ? 0 : found->second;
}

// PyTorch's meta kernels answer for CUDA where devices differ; results are to be the CPU's.
void as_on_cpu(
    TrieNode& node,
    const OpInfo& info,
    c10::ArrayRef<c10::IValue> arguments,
    const torch::jit::Stack& meta) {
  const bool batch_norm = info.name == "native_batch_norm" ||
      info.name == "_batch_norm_with_update" || info.name.rfind("_native_batch_norm_legit", 0) == 0;
  if (info.name == "_linalg_svd" || info.name == "linalg_eig") { // LAPACK's are column-major
    const size_t vectors = info.name == "linalg_eig" ? 1 : 2;
    const at::Tensor& matrix = meta[vectors].toTensor();
    if (matrix.dim() >= 2) {
      node.tensors[vectors] = spec_of(column_major_like(matrix));
    }
    return;
  }
  if (!batch_norm && info.name != "native_layer_norm") {
    return;
  }
  const at::Tensor& result = meta[0].toTensor();
  const bool half = at::isReducedFloatingType(result.scalar_type());
  const bool evaluates =
      batch_norm && arguments.size() > 5 && arguments[5].isBool() && !arguments[5].toBool();
  for (size_t at = 1; at < std::min<size_t>(node.tensors.size(), 3); ++at) {
    if (evaluates) { // saves nothing
      node.tensors[at] = spec_of(result.new_empty({0}));
    } else if (half && !has_wide_parameter(arguments)) {
      node.tensors[at] = spec_of(meta[at].toTensor().to(result.scalar_type()));
    }
  }
}

} // namespace

TrieNode* Recorder::add_child(
    const c10::OperatorHandle& op, const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  auto node = std::make_unique<TrieNode>();
  node->parent = cursor_;
  node->depth = cursor_->depth + 1;
  node->op = &info;
  node->shape_hash = call_.shape_hash;
  node->rank_hash = call_.rank_hash;
  for (const ScalarBits& scalar : call_.scalars) {
    ScalarPlace place;
    place.bits = scalar.bits;
    place.kind = scalar.kind;
    node->scalars.push_back(std::move(place));
  }
  if (!describe(*node, op, info, arguments)) {
    return nullptr;
  }
  node->words.assign(call_.words.begin(), call_.words.end());
  TrieNode* result = node.get();
  cursor_->children.push_back(std::move(node));
  ++cursor_->shapes[call_.rank_hash].shapes;
  ++stats_.nodes;
  add_to_index(*cursor_);
  return result;
}

Inferences::Key Recorder::inference_key() const {
  // The call without value numbers, its numbers, and beside its views what describe_writes()
  // and resizes_in_place() look at: each operand's buffer, and which operands are one tensor.
  constexpr uint64_t kWithoutValue = UINT32_MAX;
  Inferences::Key key(call_.words.begin(), call_.words.end());
  for (size_t at = 0; at < call_.operands.size(); ++at) {
    const Operand& operand = call_.operands[at];
    key[operand.word] &= kWithoutValue;
    size_t same = 0;
    while (!call_.operands[same].tensor->is_same(*operand.tensor)) {
      ++same;
    }
    key.push_back(same);
    key.push_back(operand.buffer->layout);
    key.push_back(operand.buffer->nbytes);
  }
  for (const ScalarBits& scalar : call_.scalars) {
    key.push_back(scalar.bits);
    key.push_back(static_cast<uint64_t>(scalar.kind));
  }
  return key;
}

bool Recorder::infer(
    TrieNode& node,
    const c10::OperatorHandle& op,
    const OpInfo& info,
    c10::ArrayRef<c10::IValue> arguments) {
  refusal_.clear();
  Inferences::Key key = inference_key();
  if (const Inferred* known = inferences_.find(key)) {
    node.tensors = known->tensors;
    node.writes = known->writes;
    node.resizes = known->resizes;
    node.results = known->results;
    return true;
  }
  if (!infer_anew(node, op, info, arguments)) {
    return false;
  }
  inferences_.add(std::move(key), {node.tensors, node.writes, node.resizes, node.results});
  return true;
}

bool Recorder::infer_anew(
    TrieNode& node,
    const c10::OperatorHandle& op,
    const OpInfo& info,
    c10::ArrayRef<c10::IValue> arguments) {
  torch::jit::Stack meta;
  for (const c10::IValue& value : arguments) {
    meta.push_back(to_meta(value));
  }
  const torch::jit::Stack meta_arguments = meta;
  try {
    c10::impl::ExcludeDispatchKeyGuard below_autograd(
        c10::autograd_dispatch_keyset_with_ADInplaceOrView);
    // The computed dispatch table, so that PyTorch's composite kernels count as well.
    op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &meta);
  } catch (python_error& error) {
    // A meta kernel in Python failed; an interrupt that met it there is the user's.
    GilGuard gil;
    error.restore();
    if (PyErr_ExceptionMatches(PyExc_Exception) == 0) {
      throw_python_error();
    }
    PyErr_Clear();
    refusal_ = std::string("no shape inference: ") + error.what();
    refusal_ = refusal_.substr(0, refusal_.find('\n'));
    return false;
  } catch (const std::exception& error) {
    refusal_ = error.what();
    refusal_ = "no shape inference: " + refusal_.substr(0, refusal_.find('\n'));
    // Either PyTorch refuses the call or it cannot infer its result without data. The host
    // kernel decides: it raises PyTorch's own error, or runs as a counted fallback.
    return false;
  }
  for (size_t at = 0; at < info.returns.size(); ++at) {
    const c10::IValue& value = meta[at];
    Result result;
    if (info.returns[at].alias >= 0) {
      result.kind = Result::Kind::Argument;
      result.index = info.returns[at].alias;
    } else if (value.isTensorList()) {
      auto list = value.toTensorVector();
      result.kind = Result::Kind::List;
      result.index = static_cast<int>(node.tensors.size());
      result.count = static_cast<int>(list.size());
      for (const at::Tensor& item : list) {
        node.tensors.push_back(spec_of(item));
      }
    } else if (value.isNone() || (value.isTensor() && !value.toTensor().defined())) {
      result.kind = Result::Kind::Undefined;
    } else if (value.isTensor()) {
      result.index = static_cast<int>(node.tensors.size());
      node.tensors.push_back(spec_of(value.toTensor()));
    } else if (at > 0 && value.isInt()) {
      result.kind = Result::Kind::Constant; // beside tensors: a size, not data
      result.constant = value;
    } else {
      refusal_ = "its result is a Python number";
      return false;
    }
    node.results.push_back(result);
  }
  if (resizes_in_place(op, info, arguments, meta_arguments)) {
    refusal_ = "it would resize a tensor that it writes in place";
    return false; // the host's kernel raises PyTorch's error
  }
  describe_writes(node, op, info, arguments, meta_arguments);
  as_on_cpu(node, info, arguments, meta);
  return true;
}

bool Recorder::describe(
    TrieNode& node,
    const c10::OperatorHandle& op,
    const OpInfo& info,
    c10::ArrayRef<c10::IValue> arguments) {
  if (!infer(node, op, info, arguments)) {
    return false;
  }
  GilGuard gil;
  drain_releases();
  size_t operand = 0;
  size_t scalar = 0;
  PyRef args = PyRef::steal(checked(PyTuple_New(static_cast<Py_ssize_t>(arguments.size()))));
  for (size_t at = 0; at < arguments.size(); ++at) {
    PyTuple_SET_ITEM(
        args.get(),
        static_cast<Py_ssize_t>(at),
        to_python(arguments[at], info.kinds[at], operand, scalar).release());
  }
  auto value = static_cast<int64_t>(owner_.size());
  PyRef tensors = PyRef::steal(checked(PyList_New(0)));
  for (const NewTensor& spec : node.tensors) {
    PyRef item = pack(
        make_int(value++),
        PyRef::borrow(dtype_name(spec.dtype)),
        make_tuple(spec.sizes),
        make_tuple(spec.strides),
        layout_to_python(spec.layout));
    PyList_Append(tensors.get(), item.get());
  }
  PyRef writes = PyRef::steal(checked(PyList_New(0)));
  for (const Write& write : node.writes) {
    PyRef resized = PyRef::borrow(Py_None);
    for (const Resize& resize : node.resizes) {
      if (resize.operand == write.operand) {
        resized = pack(make_tuple(resize.sizes), make_tuple(resize.strides));
      }
    }
    PyRef item = pack(
        make_int(write.operand),
        make_int(value++),
        layout_to_python(write.layout),
        std::move(resized));
    PyList_Append(writes.get(), item.get());
  }
  PyRef results = PyRef::steal(checked(PyList_New(0)));
  for (const Result& result : node.results) {
    PyRef item = pack(
        make_int(static_cast<int64_t>(result.kind)),
        make_int(result.index),
        make_int(result.count));
    PyList_Append(results.get(), item.get());
  }
  PyRef answer = call_engine(
      "describe",
      pack(
          make_string(info.name),
          std::move(args),
          operands_to_python(),
          std::move(tensors),
          std::move(writes),
          std::move(results)));
  if (answer.get() == Py_None) {
    return false;
  }
  node.record = PyRef::borrow(PyTuple_GetItem(answer.get(), 0));
  node.random_blocks = static_cast<uint32_t>(PyLong_AsLong(PyTuple_GetItem(answer.get(), 1)));
  PyObject* pinned = PyTuple_GetItem(answer.get(), 2);
  for (Py_ssize_t at = 0; at < PyTuple_Size(pinned); ++at) {
    auto place = static_cast<size_t>(PyLong_AsLong(PyTuple_GetItem(pinned, at)));
    node.scalars[place].pinned = true;
  }
  PyObject* varying = PyTuple_GetItem(answer.get(), 3);
  for (Py_ssize_t at = 0; at < PyTuple_Size(varying); ++at) {
    PyObject* item = PyTuple_GetItem(varying, at);
    ScalarPlace& place = node.scalars[static_cast<size_t>(PyLong_AsLong(PyTuple_GetItem(item, 0)))];
    Reach reach(PyTuple_GetItem(item, 1));
    if (reach.holds({place.bits, place.kind})) {
      place.vary(std::move(reach));
    }
  }
  if (PyErr_Occurred() != nullptr) {
    throw_python_error();
  }
  return true;
}

void Recorder::describe_writes(
    TrieNode& node,
    const c10::OperatorHandle& op,
    const OpInfo& info,
    c10::ArrayRef<c10::IValue> arguments,
    const torch::jit::Stack& meta) {
  // Operand numbers count every device tensor of the call in order, as encode() met them.
  uint32_t operand = 0;
  auto visit = [&](const at::Tensor& tensor, const at::Tensor& after, bool written) {
    if (!tensor.defined() || !tensor.is_privateuseone()) {
      TORCH_CHECK(
          !written || !tensor.defined(),
          "Expected all tensors to be on the same device, but found at least two devices, tpu:0 "
          "and ",
          tensor.defined() ? tensor.device() : c10::Device(c10::kCPU),
          "!");
      return;
    }
    if (written) {
      at::Tensor target = tensor;
      Write write{operand, 0};
      if (after.sizes() != tensor.sizes()) {
        at::Tensor like = after;
        if (tensor.numel() == 0) { // else row-major, as inference says
          const size_t place = node.writes.size();
          if (after.dim() >= 2 && (column_major_outs(info.name) >> place & 1) != 0) {
            like = column_major_like(after);
          } else if (is_pointwise(op, info.name)) {
            like = laid_out_by_operands(after, info, meta);
          }
        }
        const NewTensor resized = spec_of(like);
        node.resizes.push_back(
            {operand,
             {resized.sizes.begin(), resized.sizes.end()},
             {resized.strides.begin(), resized.strides.end()}});
        write.layout = layout_after_resize(tensor, *call_.operands[operand].buffer, resized);
      } else {
        write.layout = layout_after_write(tensor, *call_.operands[operand].buffer);
      }
      node.writes.push_back(write);
    }
    ++operand;
  };
  for (size_t at = 0; at < arguments.size(); ++at) {
    const c10::IValue& value = arguments[at];
    if (value.isTensor()) {
      visit(value.toTensor(), meta[at].toTensor(), info.written[at]);
    } else if (value.isList() && (value.isTensorList() || value.isOptionalTensorList())) {
      for (size_t item = 0; item < value.toListRef().size(); ++item) {
        const c10::IValue& element = value.toListRef()[item];
        if (element.isTensor()) {
          visit(element.toTensor(), meta[at].toListRef()[item].toTensor(), info.written[at]);
        }
      }
    }
  }
}

PyRef Recorder::operands_to_python() {
  PyRef list = PyRef::steal(checked(PyList_New(0)));
  for (const Operand& operand : call_.operands) {
    auto* impl = operand.tensor->unsafeGetTensorImpl();
    PyRef item = pack(
        make_int(operand.buffer->value),
        PyRef::borrow(dtype_name(operand.tensor->scalar_type())),
        make_tuple(impl->sizes()),
        make_tuple(impl->strides()),
        make_int(impl->storage_offset()),
        make_int(operand.scalar),
        PyRef::borrow(operand.first ? Py_True : Py_False),
        PyRef::borrow(operand.initialised ? Py_True : Py_False),
        layout_to_python(operand.buffer->layout));
    PyList_Append(list.get(), item.get());
  }
  return list;
}

PyRef Recorder::to_python(
    const c10::IValue& value, OpInfo::Kind kind, size_t& operand, size_t& scalar) {
  // ("T", operand) device tensor, ("H", dtype, value, wrapped, scalar) host tensor,
  // ("S", value, scalar) number that may vary, ("D", name) dtype, ("X",) dropped; else itself.
  auto tag = [](const char* text) { return make_string(text); };
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    if (!tensor.defined()) {
      return PyRef::borrow(Py_None);
    }
    if (tensor.is_privateuseone()) {
      ++scalar; // its offset
      return pack(tag("T"), make_int(static_cast<int64_t>(operand++)));
    }
    const c10::Scalar number = tensor.item();
    PyRef plain;
    PyRef place = PyRef::borrow(Py_None);
    if (number.isBoolean()) {
      plain = PyRef::borrow(number.toBool() ? Py_True : Py_False);
    } else if (number.isComplex()) {
      auto z = number.toComplexDouble();
      plain = PyRef::steal(checked(PyComplex_FromDoubles(z.real(), z.imag())));
    } else {
      plain = number.isFloatingPoint()
          ? PyRef::steal(checked(PyFloat_FromDouble(number.toDouble())))
          : make_int(number.toLong());
      place = make_int(static_cast<int64_t>(scalar++));
    }
    return pack(
        tag("H"),
        PyRef::borrow(dtype_name(tensor.scalar_type())),
        std::move(plain),
        PyRef::borrow(tensor.unsafeGetTensorImpl()->is_wrapped_number() ? Py_True : Py_False),
        std::move(place));
  }
  if (value.isNone()) {
    return PyRef::borrow(Py_None);
  }
  if (value.isInt()) {
    if (kind == OpInfo::Kind::Scalar) {
      return pack(tag("S"), make_int(value.toInt()), make_int(static_cast<int64_t>(scalar++)));
    }
    if (kind == OpInfo::Kind::Dtype) {
      return pack(tag("D"), PyRef::borrow(dtype_name(static_cast<c10::ScalarType>(value.toInt()))));
    }
    return make_int(value.toInt());
  }
  if (value.isDouble()) {
    PyRef number = PyRef::steal(checked(PyFloat_FromDouble(value.toDouble())));
    if (kind == OpInfo::Kind::Scalar) {
      return pack(tag("S"), std::move(number), make_int(static_cast<int64_t>(scalar++)));
    }
    return number;
  }
  if (value.isBool()) {
    return PyRef::borrow(value.toBool() ? Py_True : Py_False);
  }
  if (value.isComplexDouble()) {
    auto z = value.toComplexDouble();
    return PyRef::steal(checked(PyComplex_FromDoubles(z.real(), z.imag())));
  }
  if (value.isString()) {
    return make_string(value.toStringRef());
  }
  if (value.isIntList()) {
    return make_tuple(c10::IntArrayRef(value.toIntVector()));
  }
  if (value.isList()) {
    PyRef list = PyRef::steal(checked(PyList_New(0)));
    for (const c10::IValue& item : value.toListRef()) {
      PyRef element = to_python(item, kind, operand, scalar);
      PyList_Append(list.get(), element.get());
    }
    return list;
  }
  return pack(tag("X")); // device or generator: the trace needs neither
}

} // namespace fuse
