#include "tracing/call_encoder.h"

#include <ATen/core/List.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/hash.h>

#include <algorithm>
#include <cstring>

#include "tracing/shared_buffers.h"
#include "tracing/stream_graph.h"

namespace fuse {

namespace {

enum Tag : uint64_t {
  kTagNone = 1,
  kTagTensor,
  kTagUndefined,
  kTagHostTensor,
  kTagFloatScalar,
  kTagIntScalar,
  kTagBool,
  kTagInt,
  kTagDouble,
  kTagComplex,
  kTagString,
  kTagList,
  kTagDevice,
  kTagGenerator,
  kTagUnsigned,
};

uint64_t bits_of(double value) {
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

double host_double(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case c10::ScalarType::Double: return *static_cast<const double*>(tensor.const_data_ptr());
    case c10::ScalarType::Float: return *static_cast<const float*>(tensor.const_data_ptr());
    default: return tensor.item().toDouble();
  }
}

// How many elements arange has. Those of one size are one program wherever they start: a step of
// decoding counts from its position. Other numbers than integers that a double holds are constants,
// and so are those of the deprecated range.
void encode_count(CallKey& key, const OpInfo& info) {
  constexpr int64_t kExact = int64_t{1} << 53;
  c10::SmallVector<int64_t, 3> numbers; // end; start and end; start, end and step
  bool exact = info.base == "arange";
  for (const ScalarBits& scalar : key.scalars) {
    if (scalar.kind == ScalarKind::Offset) {
      continue;
    }
    const auto number = static_cast<int64_t>(scalar.bits);
    exact &= scalar.kind == ScalarKind::Integer && -kExact < number && number < kExact;
    numbers.push_back(number);
  }
  const int64_t step = numbers.size() == 3 ? numbers[2] : 1;
  if (exact && step != 0) {
    const int64_t length = numbers.size() == 1 ? numbers[0] : numbers[1] - numbers[0];
    numbers = {
        length / step + static_cast<int64_t>(length % step != 0 && (length < 0) == (step < 0))};
  }
  for (int64_t number : numbers) {
    key.words.push_back(static_cast<uint64_t>(number));
    key.shape_hash = c10::hash_combine(key.shape_hash, key.words.back());
  }
}

} // namespace

uint64_t host_bits(const at::Tensor& tensor) {
  return c10::isFloatingType(tensor.scalar_type()) ? bits_of(host_double(tensor))
                                                   : static_cast<uint64_t>(tensor.item().toLong());
}

void CallKey::clear() {
  words.clear();
  scalars.clear();
  operands.clear();
  shape_hash = 0;
  rank_hash = 0;
  fresh = 0;
}

const CallKey& CallEncoder::encode(
    OpenTrace& trace, const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  key_.clear();
  key_.words.push_back(reinterpret_cast<uint64_t>(&info)); // identity of the operator
  key_.shape_hash = key_.words.back();
  key_.rank_hash = key_.words.back();
  // Decides about the result of an integer and a Python float.
  key_.words.push_back(static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()));
  for (size_t index = 0; index < arguments.size(); ++index) {
    encode_value(trace, arguments[index], info.kinds[index]);
  }
  if (info.counts_up) [[unlikely]] {
    encode_count(key_, info);
  }
  return key_;
}

void CallEncoder::encode_value(OpenTrace& trace, const c10::IValue& value, OpInfo::Kind kind) {
  auto& words = key_.words;
  const size_t start = words.size();
  if (value.isTensor()) {
    encode_tensor(trace, value.toTensor());
    return; // mixes its own part of the shape hash
  }
  if (value.isNone()) {
    words.push_back(kTagNone);
  } else if (value.isInt()) {
    words.push_back(kind == OpInfo::Kind::Scalar ? kTagIntScalar : kTagInt);
    if (kind == OpInfo::Kind::Scalar) {
      key_.scalars.push_back({static_cast<uint64_t>(value.toInt()), ScalarKind::Integer});
    } else {
      words.push_back(static_cast<uint64_t>(value.toInt()));
    }
  } else if (value.isUnsigned()) { // past int64: a constant
    words.push_back(kTagUnsigned);
    words.push_back(value.toUInt());
  } else if (value.isDouble()) {
    words.push_back(kind == OpInfo::Kind::Scalar ? kTagFloatScalar : kTagDouble);
    if (kind == OpInfo::Kind::Scalar) {
      key_.scalars.push_back({bits_of(value.toDouble()), ScalarKind::Float});
    } else {
      words.push_back(bits_of(value.toDouble()));
    }
  } else if (value.isBool()) {
    words.push_back(kTagBool | static_cast<uint64_t>(value.toBool()) << 8);
  } else if (value.isComplexDouble()) {
    auto number = value.toComplexDouble();
    words.push_back(kTagComplex);
    words.push_back(bits_of(number.real()));
    words.push_back(bits_of(number.imag()));
  } else if (value.isString()) {
    const std::string& text = value.toStringRef();
    words.push_back(kTagString | text.size() << 8);
    for (size_t at = 0; at < text.size(); at += 8) {
      uint64_t word = 0;
      std::memcpy(&word, text.data() + at, std::min<size_t>(8, text.size() - at));
      words.push_back(word);
    }
  } else if (value.isTensorList()) {
    auto list = value.toListRef(); // a range over the list itself: no copies of tensors
    words.push_back(kTagList | list.size() << 8);
    for (const c10::IValue& item : list) {
      encode_tensor(trace, item.toTensor());
    }
    return;
  } else if (value.isIntList() && kind != OpInfo::Kind::Scalar) {
    auto list = value.toIntVector();
    words.push_back(kTagList | list.size() << 8);
    words.insert(words.end(), list.begin(), list.end());
  } else if (value.isList()) {
    auto list = value.toListRef();
    words.push_back(kTagList | list.size() << 8);
    for (const c10::IValue& item : list) {
      encode_value(trace, item, kind);
    }
    return;
  } else if (value.isDevice()) {
    words.push_back(kTagDevice | static_cast<uint64_t>(value.toDevice().index() + 1) << 8);
  } else if (value.isGenerator()) {
    words.push_back(kTagGenerator); // its state is drawn at run time
  } else {
    TORCH_CHECK(false, "the tpu device cannot record an argument of type ", value.tagKind());
  }
  for (size_t at = start; at < words.size(); ++at) {
    key_.shape_hash = c10::hash_combine(key_.shape_hash, words[at]);
  }
  key_.rank_hash = c10::hash_combine(key_.rank_hash, words[start] & 0xff);
}

void CallEncoder::encode_tensor(OpenTrace& trace, const at::Tensor& tensor) {
  auto& words = key_.words;
  if (!tensor.defined()) {
    words.push_back(kTagUndefined);
    return;
  }
  if (!tensor.is_privateuseone()) {
    encode_host_tensor(tensor);
    return;
  }
  Buffer* buffer = Buffer::of(tensor);
  TORCH_CHECK(buffer != nullptr, "a tensor of the tpu device has no storage");
  const bool first = !finds(trace, *buffer, cutter_);
  if (buffer->poison) {
    TORCH_CHECK(false, *buffer->poison);
  }
  if (trace.graph != nullptr && first) [[unlikely]] {
    trace.graph->hold(*buffer);
  }
  const bool initialised = !first || buffer->array.defined();
  if (first) {
    trace.meet(*buffer, trace.next_value());
    ++key_.fresh;
  }
  auto* impl = tensor.unsafeGetTensorImpl();
  const auto sizes = impl->sizes();
  const auto strides = impl->strides();
  const uint64_t head = kTagTensor | static_cast<uint64_t>(tensor.scalar_type()) << 8 |
      static_cast<uint64_t>(sizes.size()) << 16 | static_cast<uint64_t>(first) << 24 |
      static_cast<uint64_t>(initialised) << 25;
  const auto word = static_cast<uint32_t>(words.size());
  words.push_back(head | static_cast<uint64_t>(buffer->value) << 32);
  if (first) {
    words.push_back(buffer->layout);
  }
  words.insert(words.end(), sizes.begin(), sizes.end());
  words.insert(words.end(), strides.begin(), strides.end());
  uint64_t hash = c10::hash_combine(key_.shape_hash, head & 0xffffff);
  key_.rank_hash = c10::hash_combine(key_.rank_hash, head & 0xffffff);
  for (int64_t size : sizes) {
    hash = c10::hash_combine(hash, static_cast<uint64_t>(size));
  }
  key_.shape_hash = hash;
  key_.operands.push_back(
      {&tensor, buffer, first, initialised, static_cast<int>(key_.scalars.size()), word});
  key_.scalars.push_back({static_cast<uint64_t>(impl->storage_offset()), ScalarKind::Offset});
}

void CallEncoder::encode_host_tensor(const at::Tensor& tensor) {
  // What prepares a call has refused everything but 0-d CPU tensors here.
  auto& words = key_.words;
  const c10::ScalarType dtype = tensor.scalar_type();
  const bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  const uint64_t head =
      kTagHostTensor | static_cast<uint64_t>(dtype) << 8 | static_cast<uint64_t>(wrapped) << 16;
  words.push_back(head);
  key_.shape_hash = c10::hash_combine(key_.shape_hash, head);
  if (c10::isFloatingType(dtype)) {
    key_.scalars.push_back({host_bits(tensor), ScalarKind::Float, tensor.unsafeGetTensorImpl()});
  } else if (c10::isComplexType(dtype)) {
    auto number = tensor.item().toComplexDouble();
    words.push_back(bits_of(number.real()));
    words.push_back(bits_of(number.imag()));
  } else if (dtype == c10::ScalarType::Bool) {
    words.push_back(kTagBool | static_cast<uint64_t>(tensor.item().toBool()) << 8);
  } else {
    const c10::Scalar number = tensor.item();
    if (number.type() == c10::ScalarType::UInt64) { // past int64: a constant
      words.push_back(number.toUInt64());
    } else {
      key_.scalars.push_back(
          {static_cast<uint64_t>(number.toLong()),
           ScalarKind::Integer,
           tensor.unsafeGetTensorImpl()});
    }
  }
}

void CallEncoder::undo(OpenTrace& trace) {
  trace.forget_met(key_.fresh);
  key_.clear();
}

ShapeCache::Key CallKey::for_inference() const {
  constexpr uint64_t kWithoutValue = UINT32_MAX;
  ShapeCache::Key key(words.begin(), words.end());
  for (const Operand& operand : operands) {
    key[operand.word] &= kWithoutValue;
    size_t same = 0; // which operands are one tensor
    while (!operands[same].tensor->is_same(*operand.tensor)) {
      ++same;
    }
    key.push_back(same);
    key.push_back(operand.buffer->layout);
    key.push_back(operand.buffer->nbytes);
  }
  for (const ScalarBits& scalar : scalars) {
    key.push_back(scalar.bits);
    key.push_back(static_cast<uint64_t>(scalar.kind));
  }
  return key;
}

} // namespace fuse
