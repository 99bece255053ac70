// A call as a key: structure in words, numbers that may vary in scalars.
// About 100 ns for two 2-D operands; nothing is allocated once the vectors have grown.
#include <ATen/core/List.h>
#include <c10/core/DefaultDtype.h>
#include <c10/util/hash.h>

#include <cstring>

#include "recorder/recorder.h"

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

} // namespace

uint64_t host_bits(const at::Tensor& tensor) {
  return c10::isFloatingType(tensor.scalar_type()) ? bits_of(host_double(tensor))
                                                   : static_cast<uint64_t>(tensor.item().toLong());
}

void Recorder::Call::clear() {
  words.clear();
  scalars.clear();
  operands.clear();
  shape_hash = 0;
  rank_hash = 0;
  fresh = 0;
}

void Recorder::encode(const OpInfo& info, c10::ArrayRef<c10::IValue> arguments) {
  call_.clear();
  call_.words.push_back(reinterpret_cast<uint64_t>(&info)); // identity of the operator
  call_.shape_hash = call_.words.back();
  call_.rank_hash = call_.words.back();
  // Decides about the result of an integer and a Python float.
  call_.words.push_back(static_cast<uint64_t>(c10::get_default_dtype_as_scalartype()));
  for (size_t index = 0; index < arguments.size(); ++index) {
    encode_value(arguments[index], info.kinds[index]);
  }
}

void Recorder::encode_value(const c10::IValue& value, OpInfo::Kind kind) {
  auto& words = call_.words;
  const size_t start = words.size();
  if (value.isTensor()) {
    encode_tensor(value.toTensor());
    return; // mixes its own part of the shape hash
  }
  if (value.isNone()) {
    words.push_back(kTagNone);
  } else if (value.isInt()) {
    words.push_back(kind == OpInfo::Kind::Scalar ? kTagIntScalar : kTagInt);
    if (kind == OpInfo::Kind::Scalar) {
      call_.scalars.push_back({static_cast<uint64_t>(value.toInt()), ScalarKind::Integer});
    } else {
      words.push_back(static_cast<uint64_t>(value.toInt()));
    }
  } else if (value.isUnsigned()) { // past int64: a constant
    words.push_back(kTagUnsigned);
    words.push_back(value.toUInt());
  } else if (value.isDouble()) {
    words.push_back(kind == OpInfo::Kind::Scalar ? kTagFloatScalar : kTagDouble);
    if (kind == OpInfo::Kind::Scalar) {
      call_.scalars.push_back({bits_of(value.toDouble()), ScalarKind::Float});
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
      encode_tensor(item.toTensor());
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
      encode_value(item, kind);
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
    call_.shape_hash = c10::hash_combine(call_.shape_hash, words[at]);
  }
  call_.rank_hash = c10::hash_combine(call_.rank_hash, words[start] & 0xff);
}

void Recorder::encode_tensor(const at::Tensor& tensor) {
  auto& words = call_.words;
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
  const bool first = !finds(*buffer);
  if (buffer->poison) {
    TORCH_CHECK(false, *buffer->poison);
  }
  const bool initialised = !first || buffer->array.defined();
  if (first) {
    buffer->stream = open_;
    buffer->trace = open_->serial;
    buffer->value = static_cast<int32_t>(open_->owner.size());
    buffer->held();
    open_->owner.push_back(buffer);
    buffer->leaf = static_cast<int32_t>(open_->leaves.size());
    open_->leaves.push_back({buffer->value, buffer->array, buffer, buffer->layout});
    ++call_.fresh;
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
  uint64_t hash = c10::hash_combine(call_.shape_hash, head & 0xffffff);
  call_.rank_hash = c10::hash_combine(call_.rank_hash, head & 0xffffff);
  for (int64_t size : sizes) {
    hash = c10::hash_combine(hash, static_cast<uint64_t>(size));
  }
  call_.shape_hash = hash;
  call_.operands.push_back(
      {&tensor, buffer, first, initialised, static_cast<int>(call_.scalars.size()), word});
  call_.scalars.push_back({static_cast<uint64_t>(impl->storage_offset()), ScalarKind::Offset});
}

void Recorder::encode_host_tensor(const at::Tensor& tensor) {
  // record() has already refused everything but 0-d CPU tensors here.
  auto& words = call_.words;
  const c10::ScalarType dtype = tensor.scalar_type();
  const bool wrapped = tensor.unsafeGetTensorImpl()->is_wrapped_number();
  const uint64_t head =
      kTagHostTensor | static_cast<uint64_t>(dtype) << 8 | static_cast<uint64_t>(wrapped) << 16;
  words.push_back(head);
  call_.shape_hash = c10::hash_combine(call_.shape_hash, head);
  if (c10::isFloatingType(dtype)) {
    call_.scalars.push_back({host_bits(tensor), ScalarKind::Float, tensor.unsafeGetTensorImpl()});
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
      call_.scalars.push_back(
          {static_cast<uint64_t>(number.toLong()),
           ScalarKind::Integer,
           tensor.unsafeGetTensorImpl()});
    }
  }
}

void Recorder::undo_encode() {
  // The call did not become a node: the buffers it met first are strangers again.
  for (uint32_t left = call_.fresh; left > 0; --left) {
    Buffer* buffer = open_->owner.back();
    open_->owner.pop_back();
    open_->leaves.pop_back();
    buffer->let_go();
    buffer->trace = 0;
    buffer->leaf = -1;
    buffer->value = -1;
  }
  call_.clear();
}

} // namespace fuse
