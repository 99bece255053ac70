// Attention by PyTorch's CPU kernels as an XLA custom call: they never write out the scores of
// all queries and keys, which XLA does. Called on XLA's threads, without the GIL; the batch, or
// the heads of a small one, is split over them, and each share runs on one thread.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/from_blob.h>

#include <array>

#include "handler.h"
#include "laid.h"
#include "shares.h"
#include "xla/ffi/api/ffi.h"

namespace fuse {
namespace {

namespace ffi = xla::ffi;

// Multiplications of a share: some 20 us.
constexpr double kShareProducts = 1 << 19;
constexpr int64_t kSharesPerThread = 4;
constexpr std::array<int64_t, 4> kHeadsInside{0, 2, 1, 3}; // [B, L, H, E] in memory
constexpr size_t kDims = 4;

// What an operand is of its buffer.
at::Tensor part(const ffi::AnyBuffer& buffer, Integers view) {
  const at::IntArrayRef numbers = list(view);
  return part_of(
      buffer.typed_data<float>(),
      static_cast<int64_t>(buffer.element_count()),
      numbers[2 * kDims],
      numbers.slice(0, kDims),
      numbers.slice(kDims, kDims));
}

// What is added to the scores, [B, H, L, S] with 1 for any of them; nothing without sizes.
std::optional<at::Tensor> added(const ffi::AnyBuffer& buffer, Integers sizes) {
  if (sizes.size() == 0) {
    return std::nullopt;
  }
  return at::from_blob(buffer.untyped_data(), list(sizes), at::TensorOptions().dtype(at::kFloat));
}

// Shares of [B, H, L, E] along the batch or the heads, whichever there are more of.
class Split {
 public:
  Split(ffi::ThreadPool& pool, const at::Tensor& query, const at::Tensor& key)
      : dimension_(query.size(0) >= query.size(1) ? 0 : 1) {
    const double work = static_cast<double>(query.numel()) * static_cast<double>(key.size(2));
    const int64_t parts = query.size(dimension_);
    shares_ = Shares::count(pool, parts, work, kShareProducts, kSharesPerThread);
  }
  int64_t shares() const {
    return shares_;
  }
  at::Tensor part(const at::Tensor& whole, int64_t share) const {
    return Shares::part(whole, dimension_, share, shares_);
  }
  // What is added to the scores, if anything: of one sample or head, it is every share's.
  std::optional<at::Tensor> part(const std::optional<at::Tensor>& bias, int64_t share) const {
    return bias.has_value() && bias->size(dimension_) > 1 ? part(*bias, share) : bias;
  }

 private:
  int64_t dimension_;
  int64_t shares_ = 1;
};

// Operands are [B, H, L, E], each a part of its buffer: four sizes, four strides and the offset of
// its first element. `out` is [B, L, H, E], `logarithm` [B, H, L]. Without `bias_sizes` there is no
// bias, and its buffer is any.
ffi::Future attention(
    ffi::ThreadPool pool,
    ffi::AnyBuffer query,
    ffi::AnyBuffer key,
    ffi::AnyBuffer value,
    ffi::AnyBuffer bias,
    ffi::Result<ffi::AnyBuffer> out,
    ffi::Result<ffi::AnyBuffer> logarithm,
    Integers query_part,
    Integers key_part,
    Integers value_part,
    Integers bias_sizes,
    bool causal,
    double scale) {
  const std::optional<at::Tensor> scores = added(bias, bias_sizes);
  const at::Tensor q = part(query, query_part);
  const at::Tensor k = part(key, key_part);
  const at::Tensor v = part(value, value_part);
  const at::Tensor result = laid(*out, kHeadsInside);
  const at::Tensor sums = dense(*logarithm);
  const Split split(pool, q, k);
  return Shares::start(pool, split.shares(), [=](int64_t share) {
    auto [made, made_sums] = at::_scaled_dot_product_flash_attention_for_cpu(
        split.part(q, share),
        split.part(k, share),
        split.part(v, share),
        0.0,
        causal,
        split.part(scores, share),
        scale);
    split.part(result, share).copy_(made);
    split.part(sums, share).copy_(made_sums);
  });
}

// The gradients of query, key and value, each [B, L, H, E].
ffi::Future attention_gradient(
    ffi::ThreadPool pool,
    ffi::AnyBuffer grad,
    ffi::AnyBuffer query,
    ffi::AnyBuffer key,
    ffi::AnyBuffer value,
    ffi::AnyBuffer out,
    ffi::AnyBuffer logarithm,
    ffi::AnyBuffer bias,
    ffi::Result<ffi::AnyBuffer> grad_query,
    ffi::Result<ffi::AnyBuffer> grad_key,
    ffi::Result<ffi::AnyBuffer> grad_value,
    Integers grad_part,
    Integers query_part,
    Integers key_part,
    Integers value_part,
    Integers out_part,
    Integers bias_sizes,
    bool causal,
    double scale) {
  const std::optional<at::Tensor> scores = added(bias, bias_sizes);
  const at::Tensor g = part(grad, grad_part);
  const at::Tensor q = part(query, query_part);
  const at::Tensor k = part(key, key_part);
  const at::Tensor v = part(value, value_part);
  const at::Tensor o = part(out, out_part);
  const at::Tensor sums = dense(logarithm);
  const std::array<at::Tensor, 3> results{
      laid(*grad_query, kHeadsInside),
      laid(*grad_key, kHeadsInside),
      laid(*grad_value, kHeadsInside)};
  const Split split(pool, q, k);
  return Shares::start(pool, split.shares(), [=](int64_t share) {
    auto [made_query, made_key, made_value] =
        at::_scaled_dot_product_flash_attention_for_cpu_backward(
            split.part(g, share),
            split.part(q, share),
            split.part(k, share),
            split.part(v, share),
            split.part(o, share),
            split.part(sums, share),
            0.0,
            causal,
            split.part(scores, share),
            scale);
    split.part(results[0], share).copy_(made_query);
    split.part(results[1], share).copy_(made_key);
    split.part(results[2], share).copy_(made_value);
  });
}

} // namespace
} // namespace fuse

FUSE_HANDLER(attention, "query", "key", "value", "bias", "causal", "scale")
FUSE_HANDLER(attention_gradient, "grad", "query", "key", "value", "out", "bias", "causal", "scale")
