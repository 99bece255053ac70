#include "uncompiled/host_philox.h"

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

} // namespace

int64_t draw_on_host(const OpInfo& info, const RandomDraw& from, torch::jit::Stack* stack) {
  switch (info.draws) {
    case OpInfo::Draws::Dropout: return draw_dropout(from, stack);
    case OpInfo::Draws::Chance: return draw_chance(info, from, stack);
    default: return -1;
  }
}

} // namespace fuse
