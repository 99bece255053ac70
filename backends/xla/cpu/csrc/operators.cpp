// Any operator of PyTorch's by its CPU kernel, as an XLA custom call: for those that XLA's CPU
// compiler makes slow code of, a sort or a running sum say. Called on XLA's threads, without the
// GIL. Where the work is split, each share has its part of the first dimension of every buffer.
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "handler.h"
#include "shares.h"
#include "xla/ffi/api/ffi.h"

namespace fuse {
namespace {

namespace ffi = xla::ffi;

// What the numbers of a call's arguments mean: see backends/xla/cpu/operators.py.
enum Tag : int64_t { kNone, kOperand, kResult, kInteger, kFloat, kTruth, kIntegers };

at::ScalarType dtype_of(ffi::DataType dtype) {
  switch (dtype) {
    case ffi::DataType::PRED: return at::kBool;
    case ffi::DataType::S8: return at::kChar;
    case ffi::DataType::S16: return at::kShort;
    case ffi::DataType::S32: return at::kInt;
    case ffi::DataType::S64: return at::kLong;
    case ffi::DataType::U8: return at::kByte;
    case ffi::DataType::F16: return at::kHalf;
    case ffi::DataType::BF16: return at::kBFloat16;
    case ffi::DataType::F32: return at::kFloat;
    case ffi::DataType::F64: return at::kDouble;
    case ffi::DataType::C64: return at::kComplexFloat;
    case ffi::DataType::C128: return at::kComplexDouble;
    default: TORCH_CHECK(false, "an operator is called with a dtype that it does not know");
  }
}

at::Tensor tensor_of(const ffi::AnyBuffer& buffer) {
  return at::from_blob(
      buffer.untyped_data(),
      list(buffer.dimensions()),
      at::TensorOptions().dtype(dtype_of(buffer.element_type())));
}

// A call: the operator, what its arguments are, and the buffers of operands and results.
struct OperatorCall {
  c10::OperatorHandle op;
  std::vector<int64_t> arguments;
  std::vector<double> floats;
  std::vector<at::Tensor> operands;
  std::vector<at::Tensor> results;

  // Computes one share of the results, in their memory.
  void run(int64_t share, int64_t shares) const {
    torch::jit::Stack stack;
    size_t at = 0;
    while (at < arguments.size()) {
      stack.push_back(next(at, share, shares));
    }
    op.callBoxed(&stack);
  }

 private:
  c10::IValue next(size_t& at, int64_t share, int64_t shares) const {
    const int64_t tag = arguments[at++];
    if (tag == kNone) {
      return {};
    }
    const int64_t value = arguments[at++];
    const auto place = static_cast<size_t>(value);
    switch (tag) {
      case kOperand: return part(operands.at(place), share, shares);
      case kResult: return part(results.at(place), share, shares);
      case kInteger: return value;
      case kFloat: return floats.at(place);
      case kTruth: return value != 0;
      default: {
        const auto first = arguments.begin() + static_cast<std::ptrdiff_t>(at);
        at += place; // so many follow
        return c10::List<int64_t>(at::IntArrayRef(&*first, place));
      }
    }
  }

  static at::Tensor part(const at::Tensor& whole, int64_t share, int64_t shares) {
    return shares == 1 ? whole : rows(whole, share, shares);
  }
};

std::shared_ptr<const OperatorCall> call_of(
    ffi::RemainingArgs& operands,
    ffi::RemainingRets& results,
    std::string_view name,
    std::string_view overload,
    Integers arguments,
    ffi::Span<const double> floats) {
  auto call = std::make_shared<OperatorCall>(OperatorCall{
      c10::Dispatcher::singleton().findSchemaOrThrow(
          std::string(name).c_str(), std::string(overload).c_str()),
      {arguments.begin(), arguments.end()},
      {floats.begin(), floats.end()},
      {},
      {}});
  for (size_t at = 0; at < operands.size(); ++at) {
    call->operands.push_back(tensor_of(*operands.get<ffi::AnyBuffer>(at)));
  }
  for (size_t at = 0; at < results.size(); ++at) {
    call->results.push_back(tensor_of(**results.get<ffi::AnyBuffer>(at)));
  }
  return call;
}

// `shares` at most, as many as there are threads; 1: not split.
ffi::Future aten_operator(
    ffi::ThreadPool pool,
    ffi::RemainingArgs operands,
    ffi::RemainingRets results,
    std::string_view name,
    std::string_view overload,
    Integers arguments,
    ffi::Span<const double> floats,
    int64_t shares) {
  std::shared_ptr<const OperatorCall> call;
  try {
    call = call_of(operands, results, name, overload, arguments, floats);
  } catch (const std::exception& error) {
    ffi::Promise failed;
    failed.SetError(ffi::Error::Internal(error.what()));
    return ffi::Future(failed);
  }
  const int64_t count = std::min(shares, pool.num_threads());
  return Shares::start(pool, count, [=](int64_t share) { call->run(share, count); });
}

} // namespace
} // namespace fuse

FUSE_HANDLER(aten_operator, "name", "overload", "arguments", "floats", "shares")
