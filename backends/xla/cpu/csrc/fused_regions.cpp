// Fused regions: PyTorch's CPU kernels as one XLA custom call, for what is done to the samples of a
// batch, or to rows, one independently of the other: linear layers, norms, attention and what lies
// between them. The batch is split over XLA's threads once, and each goes through all operations
// with its samples; called one by one, every kernel would end with all threads waiting for the
// last. Called on XLA's threads, without the GIL; each share runs on one thread.
#include <ATen/core/Tensor.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/silu.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "handler.h"
#include "laid.h"
#include "shares.h"
#include "xla/ffi/api/ffi.h"

namespace fuse {
namespace {

namespace ffi = xla::ffi;

using Tensors = std::vector<at::Tensor>;

// ---- the kernels, in the order in which `region_ops.py` numbers them ------------------------

void product(const Tensors& in, Tensors& out, const double*) {
  at::mm_out(out[0], in[0], in[1]);
}

void biased_product(const Tensors& in, Tensors& out, const double*) {
  at::addmm_out(out[0], in[0], in[1], in[2]);
}

std::optional<at::Tensor> given(const at::Tensor& tensor) {
  return tensor.defined() ? std::make_optional(tensor) : std::nullopt;
}

void layer_norm(const Tensors& in, Tensors& out, const double* numbers) {
  auto [normal, mean, rstd] =
      at::native_layer_norm(in[0], {in[0].size(1)}, given(in[1]), given(in[2]), numbers[0]);
  out[0].copy_(normal);
  out[1].copy_(mean);
  out[2].copy_(rstd);
}

void gelu(const Tensors& in, Tensors& out, const double* numbers) {
  at::gelu_out(out[0], in[0], numbers[0] != 0 ? "tanh" : "none");
}

void relu(const Tensors& in, Tensors& out, const double*) {
  at::clamp_min_out(out[0], in[0], 0); // a kernel that writes where it is told to
}

void silu(const Tensors& in, Tensors& out, const double*) {
  at::silu_out(out[0], in[0]);
}

void add(const Tensors& in, Tensors& out, const double*) {
  at::add_out(out[0], in[0], in[1]);
}

void multiply(const Tensors& in, Tensors& out, const double*) {
  at::mul_out(out[0], in[0], in[1]);
}

// `numbers` are whether it is causal, and the scale.
void attention(const Tensors& in, Tensors& out, const double* numbers) {
  auto [made, logarithm] = at::_scaled_dot_product_flash_attention_for_cpu(
      in[0], in[1], in[2], 0.0, numbers[0] != 0, std::nullopt, numbers[1]);
  out[0].copy_(made);
  out[1].copy_(logarithm);
}

using Kernel = void (*)(const Tensors& in, Tensors& out, const double* numbers);
constexpr std::array<Kernel, 9> kKernels{
    &product, &biased_product, &layer_norm, &gelu, &relu, &silu, &add, &multiply, &attention};

// ---- the program ------------------------------------------------------------------------------

// An operand or result: a part of a value.
struct Part {
  enum class Kind : int64_t {
    None, // an operand that is not given
    Whole, // the same for all samples
    Split, // every sample has its own
  };
  Kind kind = Kind::None;
  size_t value = 0;
  int64_t offset = 0;
  std::vector<int64_t> sizes; // where it is split, the first is that of all samples
  std::vector<int64_t> strides;
};

struct RegionOp {
  Kernel kernel = nullptr;
  size_t numbers = 0; // where its own begin
  std::vector<Part> in;
  std::vector<Part> out;
};

// Reads what `fused_regions.py` writes: for each operation its kernel, the place of its numbers,
// and its operands and results, each list after its length.
class Reader {
 public:
  explicit Reader(at::IntArrayRef words) : words_(words) {}

  std::vector<RegionOp> ops() {
    std::vector<RegionOp> ops;
    while (at_ < words_.size()) {
      RegionOp op;
      op.kernel = kKernels.at(next());
      op.numbers = next();
      op.in = parts();
      op.out = parts();
      ops.push_back(std::move(op));
    }
    return ops;
  }

 private:
  size_t next() {
    return static_cast<size_t>(words_[at_++]);
  }
  std::vector<int64_t> list() {
    const size_t count = next();
    at_ += count;
    return words_.slice(at_ - count, count).vec();
  }
  std::vector<Part> parts() {
    std::vector<Part> found(next());
    for (Part& part : found) {
      part.kind = static_cast<Part::Kind>(next());
      if (part.kind != Part::Kind::None) {
        part.value = next();
        part.offset = words_[at_++];
        part.sizes = list();
        part.strides = list();
      }
    }
    return found;
  }

  at::IntArrayRef words_;
  size_t at_ = 0;
};

// A value that XLA holds, or one that nobody outside the region reads.
struct Value {
  float* data = nullptr; // null for the latter: each share has its own
  int64_t count = 0; // numbers, of all samples for the former, of one for the latter

  static Value of(const ffi::AnyBuffer& buffer) {
    return {
        static_cast<float*>(buffer.untyped_data()), static_cast<int64_t>(buffer.element_count())};
  }
};

class FusedRegion {
 public:
  FusedRegion(
      std::vector<Value> values,
      std::vector<RegionOp> ops,
      std::vector<double> numbers,
      int64_t samples)
      : values_(std::move(values)),
        ops_(std::move(ops)),
        numbers_(std::move(numbers)),
        samples_(samples) {}

  void run(int64_t share, int64_t shares) const {
    const int64_t first = samples_ * share / shares;
    const int64_t count = samples_ * (share + 1) / shares - first;
    Tensors scratch;
    std::vector<Value> mine; // what this share sees of each
    for (Value value : values_) {
      if (value.data == nullptr) {
        value.count *= count;
        scratch.push_back(at::empty({value.count}, at::kFloat));
        value.data = scratch.back().mutable_data_ptr<float>();
      }
      mine.push_back(value);
    }
    auto tensor = [&](const Part& part) {
      return part.kind == Part::Kind::None ? at::Tensor() : view(part, mine, first, count);
    };
    for (const RegionOp& op : ops_) {
      Tensors in;
      Tensors out;
      std::transform(op.in.begin(), op.in.end(), std::back_inserter(in), tensor);
      std::transform(op.out.begin(), op.out.end(), std::back_inserter(out), tensor);
      op.kernel(in, out, numbers_.data() + op.numbers);
    }
  }

 private:
  at::Tensor view(
      const Part& part, const std::vector<Value>& mine, int64_t first, int64_t count) const {
    const Value& value = mine[part.value];
    std::vector<int64_t> sizes = part.sizes;
    int64_t start = part.offset;
    if (part.kind == Part::Kind::Split) {
      const bool own = values_[part.value].data == nullptr;
      start += own ? 0 : value.count / samples_ * first;
      sizes[0] = sizes[0] / samples_ * count;
    }
    return part_of(value.data, value.count, start, sizes, part.strides);
  }

  std::vector<Value> values_;
  std::vector<RegionOp> ops_;
  std::vector<double> numbers_;
  int64_t samples_;
};

// The values are the operands, the results, and what is in `scratch`: numbers of one sample each.
// Every thread gets up to `each` shares.
ffi::Future fused_region(
    ffi::ThreadPool pool,
    ffi::RemainingArgs arguments,
    ffi::RemainingRets results,
    Integers ops,
    Integers scratch,
    ffi::Span<const double> numbers,
    int64_t samples,
    int64_t each) {
  std::vector<Value> values;
  for (size_t at = 0; at < arguments.size(); ++at) {
    values.push_back(Value::of(arguments.get<ffi::AnyBuffer>(at).value()));
  }
  for (size_t at = 0; at < results.size(); ++at) {
    values.push_back(Value::of(*results.get<ffi::AnyBuffer>(at).value()));
  }
  for (int64_t count : scratch) {
    values.push_back({nullptr, count});
  }
  const auto whole = std::make_shared<const FusedRegion>(
      std::move(values),
      Reader(list(ops)).ops(),
      std::vector<double>(numbers.begin(), numbers.end()),
      samples);
  const int64_t shares = std::min<int64_t>(samples, each * pool.num_threads());
  return Shares::start(pool, shares, [=](int64_t share) { whole->run(share, shares); });
}

} // namespace
} // namespace fuse

FUSE_HANDLER(fused_region, "ops", "scratch", "numbers", "samples", "each")
