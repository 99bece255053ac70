// Element i of a random call is made from word i that the device's generator gives, and from
// element i of the operands: so the beginning of a longer draw is the shorter one. A call past the
// shape cap is drawn by the device all the same, as one line of elements whose number is a power of
// two: as many executables as powers, and the same numbers after the same seed, whether the place
// has met the cap by then or not. PyTorch's CPU kernels would draw other numbers, and from the
// CPU's generator, which is not the device's to move.
#include "cpu_exec/host_draws.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "cpu_exec/host_philox.h"
#include "runtime/generator.h"
#include "tracing/record_only.h"

namespace fuse {

namespace {

constexpr int64_t kMostCategories = 1 << 24; // that PyTorch's kernel takes
constexpr int64_t kFewest = 256; // elements: below, another executable would save nothing

int64_t line_for(int64_t count) {
  int64_t size = kFewest;
  while (size < count) {
    size *= 2;
  }
  return size;
}

at::Tensor beginning(const at::Tensor& line, int64_t count) {
  return line.cpu().narrow(0, 0, count);
}

// The arguments and results of one call, as they are and as lines of elements.
class Drawing {
 public:
  Drawing(const OpInfo& info, c10::ArrayRef<c10::IValue> originals, torch::jit::Stack* stack)
      : info_(info),
        originals_(originals),
        stack_(stack),
        start_(stack->size() - originals.size()) {}

  // Elements drawn, or -1 where operands differ in shape.
  int64_t run(const c10::OperatorHandle& op, c10::Device device) {
    if (!find_shape()) {
      return -1;
    }
    const torch::jit::Stack operands = lines(device);
    torch::jit::Stack results = operands;
    op.callBoxed(&results);
    finish(operands, std::move(results));
    return count_;
  }

 private:
  // What all operands agree on, or the call's size; false where they do not.
  bool find_shape() {
    for (size_t at = 0; at < originals_.size(); ++at) {
      if (is_operand(at)) {
        const at::Tensor& operand = host(at);
        if (shape_ && operand.sizes() != *shape_) {
          return false;
        }
        shape_ = operand.sizes();
        like_ = like_.defined() ? like_ : operand;
      } else if (is_size(at)) {
        shape_ = originals_[at].toDimVector();
      }
    }
    count_ = shape_ ? c10::multiply_integers(*shape_) : 0;
    return shape_.has_value();
  }

  torch::jit::Stack lines(c10::Device device) const {
    const int64_t size = line_for(count_);
    torch::jit::Stack call;
    for (size_t at = 0; at < originals_.size(); ++at) {
      if (is_operand(at)) {
        at::Tensor line = at::zeros({size}, host(at).options());
        line.narrow(0, 0, count_).copy_(host(at).reshape(-1));
        call.emplace_back(line.to(device));
      } else if (is_size(at)) {
        call.emplace_back(c10::IntArrayRef(size));
      } else {
        call.push_back(originals_[at]);
      }
    }
    return call;
  }

  // `operands` are the lines that the call read and wrote, `results` what it returned.
  void finish(const torch::jit::Stack& operands, torch::jit::Stack results) {
    for (size_t at = 0; at < originals_.size(); ++at) {
      if (info_.written[at]) {
        host(at).copy_(result_of(operands[at]));
      }
    }
    for (size_t at = 0; at < results.size(); ++at) {
      const int alias = info_.returns[at].alias;
      results[at] = alias >= 0 ? c10::IValue(host(static_cast<size_t>(alias)))
                               : c10::IValue(laid_out(result_of(results[at])));
    }
    torch::jit::drop(*stack_, originals_.size());
    std::move(results.begin(), results.end(), std::back_inserter(*stack_));
  }

  bool is_operand(size_t at) const {
    const c10::IValue& value = originals_[at];
    return value.isTensor() && value.toTensor().defined() && value.toTensor().is_privateuseone();
  }

  bool is_size(size_t at) const {
    return static_cast<int>(at) == info_.size;
  }

  const at::Tensor& host(size_t at) const {
    return (*stack_)[start_ + at].toTensor();
  }

  at::Tensor result_of(const c10::IValue& line) const {
    return beginning(line.toTensor(), count_).view(*shape_);
  }

  // As the operand lies in memory: what is made of it lies so too, but for these.
  at::Tensor laid_out(at::Tensor result) const {
    const bool row_major =
        info_.name.rfind("bernoulli", 0) == 0 || info_.name.rfind("normal.", 0) == 0;
    if (row_major || !like_.defined() || like_.strides() == result.strides()) {
      return result;
    }
    return at::empty_like(like_, result.options()).copy_(result);
  }

  const OpInfo& info_;
  c10::ArrayRef<c10::IValue> originals_;
  torch::jit::Stack* stack_;
  size_t start_;
  std::optional<c10::DimVector> shape_;
  at::Tensor like_;
  int64_t count_ = 0;
};

bool are_probabilities(const at::Tensor& weights) {
  return weights.isfinite().all().item<bool>() && weights.ge(0).all().item<bool>() &&
      weights.sum(-1).gt(0).all().item<bool>();
}

// Elements drawn, or -1 where the kernel has to refuse. The formulas are those of the backends'
// rules.
int64_t draw_multinomial(at::Generator& generator, c10::Device device, torch::jit::Stack* stack) {
  auto arguments = torch::jit::last(*stack, 4);
  at::Tensor weights = arguments[0].toTensor();
  const int64_t samples = arguments[1].toInt();
  const bool inverted = arguments[2].toBool() && samples > 1;
  if (!weights.is_floating_point() || weights.dim() < 1 || weights.dim() > 2 || samples < 1 ||
      weights.numel() == 0 || (!inverted && samples > weights.size(-1)) ||
      weights.size(-1) > kMostCategories || !are_probabilities(weights)) {
    return -1;
  }
  if (weights.element_size() < 4) {
    weights = weights.to(at::kFloat);
  }
  c10::DimVector shape(weights.sizes().begin(), weights.sizes().end());
  shape.back() = inverted ? samples : shape.back();
  const int64_t count = c10::multiply_integers(shape);
  const at::Tensor line = at::empty({line_for(count)}, weights.options().device(device));
  const at::Tensor numbers =
      beginning(inverted ? line.uniform_(0, 1, generator) : line.exponential_(1, generator), count)
          .view(shape);
  at::Tensor found;
  if (inverted) {
    const at::Tensor sums = weights.cumsum(-1);
    const at::Tensor total = sums.narrow(-1, sums.size(-1) - 1, 1);
    const at::Tensor last = sums.ge(total).to(at::kByte).argmax(-1, true);
    found = at::searchsorted(sums, numbers.mul(total), false, true).minimum(last);
  } else {
    found = std::get<1>(weights.div(numbers).topk(samples));
  }
  torch::jit::drop(*stack, 4);
  stack->emplace_back(found);
  return std::max(weights.numel(), found.numel());
}

int64_t draw_permutation(
    const OpInfo& info, at::Generator& generator, c10::Device device, torch::jit::Stack* stack) {
  const size_t arguments = info.kinds.size();
  auto given = torch::jit::last(*stack, arguments);
  const int64_t count = given[0].toInt();
  at::Tensor out = info.writes ? given.back().toTensor() : at::Tensor();
  if (count < 0 || (out.defined() && out.sizes() != c10::IntArrayRef(count))) {
    return -1; // what is resized the kernel resizes
  }
  const at::Tensor line = at::empty({line_for(count)}, at::TensorOptions(device).dtype(at::kLong));
  // All 64 bits, in the order of unsigned numbers.
  line.random_(std::numeric_limits<int64_t>::min(), std::nullopt, generator);
  at::Tensor found = beginning(line, count).argsort();
  if (out.defined()) {
    found = out.copy_(found);
  } else if (!given[2].isNone()) { // randperm.generator(n, generator, dtype, ...)
    found = found.to(given[2].toScalarType());
  }
  torch::jit::drop(*stack, arguments);
  stack->emplace_back(found);
  return count;
}

} // namespace

bool draw_on_device(
    const c10::OperatorHandle& op,
    const OpInfo& info,
    c10::ArrayRef<c10::IValue> originals,
    c10::Device device,
    torch::jit::Stack* stack) {
  if (info.draws == OpInfo::Draws::No) {
    return false;
  }
  const auto place = static_cast<size_t>(info.generator);
  at::Generator generator = info.generator >= 0 && originals[place].isGenerator()
      ? originals[place].toGenerator()
      : default_generator(device.index());
  if (!generator.device().is_privateuseone()) {
    return false;
  }
  const RandomDraw from = draw(generator, 0);
  const uint64_t offset = from.offset;
  const RecordOnly any;
  int64_t drawn = draw_on_host(info, from, stack);
  if (drawn >= 0) {
    draw(generator, static_cast<uint64_t>(std::max<int64_t>(drawn, 1)));
    return true;
  }
  switch (info.draws) {
    case OpInfo::Draws::Samples: drawn = draw_multinomial(generator, device, stack); break;
    case OpInfo::Draws::Permutation:
      drawn = draw_permutation(info, generator, device, stack);
      break;
    default: drawn = Drawing(info, originals, stack).run(op, device);
  }
  if (drawn >= 0) { // by the line, the generator has been moved too far
    std::lock_guard<std::mutex> guard(generator.mutex());
    generator.set_offset(offset + static_cast<uint64_t>(std::max<int64_t>(drawn, 1)));
  }
  return drawn >= 0;
}

} // namespace fuse
