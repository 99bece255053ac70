#include "cpu_exec/host_philox.h"

#include <ATen/Parallel.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mul.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace fuse {

namespace {

constexpr int64_t kWords = 4; // of a block
constexpr int64_t kGrain = 1 << 14; // blocks that are worth a thread
constexpr int64_t kFew = 1 << 14; // numbers that cost less here than an executable's call

std::array<uint32_t, kWords> philox(uint64_t seed, uint64_t counter) {
  std::array<uint32_t, kWords> c{
      static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  auto k0 = static_cast<uint32_t>(seed);
  auto k1 = static_cast<uint32_t>(seed >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t left = uint64_t{c[0]} * 0xD2511F53u;
    const uint64_t right = uint64_t{c[2]} * 0xCD9E8D57u;
    c = {
        static_cast<uint32_t>(right >> 32) ^ c[1] ^ k0,
        static_cast<uint32_t>(right),
        static_cast<uint32_t>(left >> 32) ^ c[3] ^ k1,
        static_cast<uint32_t>(left)};
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  return c;
}

// True with a probability, in row-major order.
at::Tensor below(const RandomDraw& from, at::IntArrayRef sizes, double probability) {
  at::Tensor mask = at::empty(sizes, at::TensorOptions().dtype(at::kBool));
  const auto limit = static_cast<uint32_t>(std::ceil(probability * 0x1p24));
  const int64_t count = mask.numel();
  bool* out = mask.mutable_data_ptr<bool>();
  at::parallel_for(0, (count + kWords - 1) / kWords, kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end; ++block) {
      const auto words = philox(from.seed, from.offset + static_cast<uint64_t>(block));
      const int64_t first = block * kWords;
      for (int64_t at = first; at < std::min(first + kWords, count); ++at) {
        out[at] = words[static_cast<size_t>(at - first)] >> 8 < limit;
      }
    }
  });
  return mask;
}

// Lying in memory as another tensor does.
at::Tensor laid_out_as(const at::Tensor& like, const at::Tensor& mask) {
  return like.is_contiguous() ? mask : at::empty_like(like, mask.options()).copy_(mask);
}

int64_t draw_dropout(const RandomDraw& from, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, 3); // input, p, train
  const at::Tensor input = arguments[0].toTensor();
  const bool trains = arguments[2].isNone() || arguments[2].toBool();
  const double keep = 1.0 - arguments[1].toDouble();
  if (!at::isFloatingType(input.scalar_type()) || !trains || !(keep >= 0 && keep <= 1)) {
    return -1;
  }
  const at::Tensor mask = laid_out_as(input, below(from, input.sizes(), keep));
  const auto work = input.element_size() < 4 ? at::kFloat : input.scalar_type();
  // A product, not a selection: a dropped infinity is NaN, as in PyTorch.
  const at::Tensor kept =
      at::mul(input.to(work), mask).mul_(keep == 0 ? 0.0 : 1.0 / keep).to(input.scalar_type());
  torch::jit::drop(*stack, 3);
  stack->emplace_back(kept);
  stack->emplace_back(mask);
  return kept.numel();
}

int64_t draw_chance(const OpInfo& info, const RandomDraw& from, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, 3); // self, p, generator
  at::Tensor self = arguments[0].toTensor();
  const double p = arguments[1].toDouble();
  if (!(p >= 0 && p <= 1)) {
    return -1; // PyTorch's error
  }
  const at::Tensor mask = below(from, self.sizes(), p);
  at::Tensor found = info.writes ? self.copy_(mask) : at::empty_like(self).copy_(mask);
  torch::jit::drop(*stack, 3);
  stack->emplace_back(std::move(found));
  return self.numel();
}

// Words of a draw, one an element, in row-major order.
class Words {
 public:
  explicit Words(const RandomDraw& from) : from_(from) {}
  uint32_t next() {
    if (at_ == kWords) {
      block_ = philox(from_.seed, from_.offset++);
      at_ = 0;
    }
    return block_[static_cast<size_t>(at_++)];
  }
  // Uniform in [0, 1).
  float unit() {
    return static_cast<float>(next() >> 8) * 0x1p-24f;
  }
  // Uniform in (0, 1).
  float open_unit() {
    return static_cast<float>((next() >> 9) << 1 | 1) * 0x1p-24f;
  }
  // Normal by inversion: Giles' polynomials ("Approximating the erfinv function", 2010).
  float normal() {
    const auto odd = static_cast<int32_t>((next() >> 8) << 1 | 1);
    const float x = static_cast<float>(odd - (1 << 24)) * 0x1p-24f;
    const float w = -std::log1p(-x * x);
    return 0x1.6a09e6p+0f * (w < 5 ? near(w - 2.5f) : far(std::sqrt(w) - 3.0f)) * x;
  }

 private:
  template <size_t count>
  static float horner(const std::array<float, count>& factors, float w) {
    float sum = 0;
    for (const float factor : factors) {
      sum = sum * w + factor;
    }
    return sum;
  }
  static float near(float w) {
    return horner<9>(
        {2.81022636e-08f,
         3.43273939e-07f,
         -3.5233877e-06f,
         -4.39150654e-06f,
         0.00021858087f,
         -0.00125372503f,
         -0.00417768164f,
         0.246640727f,
         1.50140941f},
        w);
  }
  static float far(float w) {
    return horner<9>(
        {-0.000200214257f,
         0.000100950558f,
         0.00134934322f,
         -0.00367342844f,
         0.00573950773f,
         -0.0076224613f,
         0.00943887047f,
         1.00167406f,
         2.83297682f},
        w);
  }

  RandomDraw from_;
  std::array<uint32_t, kWords> block_{};
  int64_t at_ = kWords;
};

// Fills `self`, in row-major order, with what `next` says.
template <typename Next>
void fill(const at::Tensor& self, Next&& next) {
  const at::Tensor line = self.is_contiguous() ? self : at::empty(self.sizes(), self.options());
  auto* out = line.mutable_data_ptr<float>();
  std::generate_n(out, line.numel(), next);
  if (!line.is_same(self)) {
    self.copy_(line);
  }
}

// `uniform_` and `normal_` of few numbers: arguments self, two numbers, generator.
int64_t draw_numbers(bool uniform, const RandomDraw& from, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, 4);
  const at::Tensor self = arguments[0].toTensor();
  const double first = arguments[1].toDouble();
  const double second = arguments[2].toDouble();
  const bool refused = uniform ? !(first <= second) : !(second >= 0);
  if (self.scalar_type() != at::kFloat || self.numel() > kFew || refused) {
    return -1;
  }
  Words words(from);
  if (uniform) {
    const auto span = static_cast<float>(second - first);
    fill(self, [&] { return words.unit() * span + static_cast<float>(first); });
  } else {
    fill(self, [&] {
      return words.normal() * static_cast<float>(second) + static_cast<float>(first);
    });
  }
  torch::jit::drop(*stack, 4);
  stack->emplace_back(self);
  return self.numel();
}

// The first arrival of an exponential race; -1 where the weights are no probabilities.
int64_t first_arrival(c10::ArrayRef<float> weights, Words& words) {
  float sum = 0;
  float most = -1;
  int64_t found = -1;
  for (size_t at = 0; at < weights.size(); ++at) {
    if (!(weights[at] >= 0 && std::isfinite(weights[at]))) {
      return -1;
    }
    sum += weights[at];
    const float speed = weights[at] / -std::log(words.open_unit());
    if (speed > most) {
      most = speed;
      found = static_cast<int64_t>(at);
    }
  }
  return sum > 0 ? found : -1;
}

// `multinomial` of one sample a row, of few weights.
int64_t draw_sample(const RandomDraw& from, torch::jit::Stack* stack) {
  const auto arguments = torch::jit::last(*stack, 4); // self, samples, replacement, generator
  const at::Tensor weights = arguments[0].toTensor();
  if (weights.scalar_type() != at::kFloat || !weights.is_contiguous() || weights.dim() < 1 ||
      weights.dim() > 2 || weights.numel() == 0 || weights.numel() > kFew ||
      arguments[1].toInt() != 1) {
    return -1;
  }
  const auto width = static_cast<size_t>(weights.size(-1));
  c10::DimVector sizes(weights.sizes().begin(), weights.sizes().end());
  sizes.back() = 1;
  at::Tensor found = at::empty(sizes, at::TensorOptions().dtype(at::kLong));
  auto* out = found.mutable_data_ptr<int64_t>();
  Words words(from);
  for (int64_t row = 0; row < found.numel(); ++row) {
    out[row] = first_arrival(
        {weights.const_data_ptr<float>() + static_cast<size_t>(row) * width, width}, words);
    if (out[row] < 0) {
      return -1;
    }
  }
  torch::jit::drop(*stack, 4);
  stack->emplace_back(std::move(found));
  return weights.numel();
}

} // namespace

int64_t draw_on_host(const OpInfo& info, const RandomDraw& from, torch::jit::Stack* stack) {
  switch (info.draws) {
    case OpInfo::Draws::Dropout: return draw_dropout(from, stack);
    case OpInfo::Draws::Chance: return draw_chance(info, from, stack);
    case OpInfo::Draws::Samples: return draw_sample(from, stack);
    case OpInfo::Draws::Elements:
      return info.name == "uniform_" || info.name == "normal_"
          ? draw_numbers(info.name == "uniform_", from, stack)
          : -1;
    default: return -1;
  }
}

} // namespace fuse
