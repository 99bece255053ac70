// PyTorch's CPU kernels would draw other numbers, and from the CPU's generator, which is not the
// device's to move. Here the same numbers come after the same seed, whether the place runs compiled
// by then or not.
#include "cpu_exec/host_draws.h"

#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/where.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "cpu_exec/host_distributions.h"
#include "cpu_exec/host_permutation.h"
#include "runtime/generator.h"

namespace fuse {

namespace {

using Arguments = c10::ArrayRef<c10::IValue>;

// The results of a call, none where it is not drawn here, and how many numbers were drawn.
struct Drawn {
  c10::SmallVector<at::Tensor, 2> results;
  int64_t count = 0;
};

// The argument that the result is written to; undefined if it is a new tensor.
at::Tensor written_by(const OpInfo& info, Arguments arguments) {
  const int alias = info.returns[0].alias;
  return alias < 0 ? at::Tensor() : arguments[static_cast<size_t>(alias)].toTensor();
}

std::optional<at::ScalarType> asked_dtype(const OpInfo& info, Arguments arguments) {
  const auto found = std::find(info.kinds.begin(), info.kinds.end(), OpInfo::Kind::Dtype);
  return found == info.kinds.end()
      ? std::nullopt
      : arguments[static_cast<size_t>(found - info.kinds.begin())].toOptional<at::ScalarType>();
}

// Lying in memory as another tensor does, or as is asked for.
at::Tensor laid_out_as(
    const at::Tensor& like,
    const at::Tensor& result,
    std::optional<at::MemoryFormat> format = std::nullopt) {
  return !format && like.strides() == result.strides()
      ? result
      : at::empty_like(like, result.options(), format).copy_(result);
}

// ---- elements ---------------------------------------------------------------------------

// Whether a distribution's operands are all that it depends on, the first one too.
bool is_of_operands(const OpInfo& info) {
  return (info.base == "bernoulli" && info.generator == 1) || info.base == "_standard_gamma" ||
      info.base == "binomial" || info.base == "poisson";
}

// What a distribution depends on: the arguments before size, generator and dtype, but for a first
// one that is overwritten or says the shape alone.
Arguments numbers_of(const OpInfo& info, Arguments arguments) {
  const bool first = info.size >= 0 || info.name.starts_with("normal.Tensor") ||
      info.name.starts_with("normal.float") || is_of_operands(info);
  const size_t begin = first ? 0 : 1;
  size_t end = begin;
  while (end < arguments.size() && info.kinds[end] != OpInfo::Kind::Dtype &&
         static_cast<int>(end) != info.size && static_cast<int>(end) != info.generator) {
    ++end;
  }
  return arguments.slice(begin, end - begin);
}

// The shape of the call, or of its operands; none where these do not fit.
std::optional<c10::DimVector> sizes_of(const OpInfo& info, Arguments arguments) {
  if (info.size >= 0) {
    return arguments[static_cast<size_t>(info.size)].toDimVector();
  }
  std::optional<c10::DimVector> found;
  for (size_t at = 0; at < arguments.size(); ++at) {
    const bool is_out = at > 0 && static_cast<int>(at) == info.returns[0].alias;
    if (!arguments[at].isTensor() || is_out) {
      continue;
    }
    const at::IntArrayRef sizes = arguments[at].toTensor().sizes();
    if (!found) {
      found.emplace(sizes.begin(), sizes.end());
    } else if (info.base == "normal") {
      found = at::infer_size_dimvector(*found, sizes);
    } else if (!at::is_expandable_to(sizes, *found)) {
      return std::nullopt;
    }
  }
  return found;
}

// The first tensor, which says dtype and layout where the call does not.
at::Tensor like_of(Arguments arguments) {
  const auto* const found = std::find_if(
      arguments.begin(), arguments.end(), [](const auto& value) { return value.isTensor(); });
  return found == arguments.end() ? at::Tensor() : found->toTensor();
}

// Lying in memory as PyTorch lays it out: by its operand, or row-major.
at::Tensor laid_out(const OpInfo& info, Arguments arguments, const at::Tensor& result) {
  const at::Tensor like = like_of(arguments);
  // Of halves PyTorch has no kernel of gamma, and infers the order of the operand.
  const bool inferred = info.base == "_standard_gamma" && result.element_size() < 4;
  if (!like.defined() || info.base == "normal" || info.name == "bernoulli.p" ||
      (is_of_operands(info) && !inferred)) {
    return result;
  }
  return info.base.ends_with("_like")
      ? laid_out_as(like, result, arguments.back().toOptional<at::MemoryFormat>())
      : laid_out_as(like, result);
}

Drawn draw_each_element(const OpInfo& info, const RandomDraw& from, Arguments arguments) {
  const std::optional<c10::DimVector> sizes = sizes_of(info, arguments);
  const at::Tensor out = written_by(info, arguments);
  if (!sizes || (out.defined() && out.sizes() != *sizes)) {
    return {}; // what is resized the kernel resizes
  }
  const at::Tensor like = like_of(arguments);
  const at::ScalarType otherwise =
      like.defined() ? like.scalar_type() : c10::get_default_dtype_as_scalartype();
  const at::ScalarType dtype =
      out.defined() ? out.scalar_type() : asked_dtype(info, arguments).value_or(otherwise);
  const at::Tensor made =
      draw_elements(info.base, {from, *sizes, dtype}, numbers_of(info, arguments));
  if (!made.defined()) {
    return {};
  }
  const at::Tensor result =
      out.defined() ? out.copy_(made) : laid_out(info, arguments, made.to(dtype));
  return {{result}, made.numel()};
}

// A leaky ReLU whose slopes are drawn, or in evaluation are their mean.
Drawn draw_rrelu(const OpInfo& info, const RandomDraw& from, Arguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor& noise = arguments[1].toTensor();
  const double lower = arguments[2].toScalar().toDouble();
  const double upper = arguments[3].toScalar().toDouble();
  const at::Tensor out = written_by(info, arguments);
  const at::ScalarType dtype = self.scalar_type();
  if (digits_of(dtype) == 0 || noise.scalar_type() != dtype || noise.sizes() != self.sizes() ||
      (out.defined() && out.sizes() != self.sizes()) || !(lower <= upper)) {
    return {};
  }
  const at::Tensor x = self.element_size() < 4 ? self.to(at::kFloat) : self;
  at::Tensor slopes = noise;
  at::Tensor made;
  if (arguments[4].toBool()) {
    slopes = at::where(x.le(0), uniform({from, self.sizes(), dtype}, lower, upper), 1);
    made = x.mul(slopes);
  } else {
    made = at::leaky_relu(x, (lower + upper) / 2);
  }
  made = out.defined() ? out.copy_(made) : made.to(dtype).contiguous();
  if (info.written[1]) {
    noise.copy_(slopes);
    return {{made}, self.numel()};
  }
  return {{laid_out_as(self, made), laid_out_as(noise, slopes.to(dtype))}, self.numel()};
}

Drawn draw_dropout(const OpInfo& info, const RandomDraw& from, Arguments arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  const double keep = 1.0 - arguments[1].toDouble();
  const bool trains = arguments[2].isNone() || arguments[2].toBool();
  if (info.writes || !at::isFloatingType(input.scalar_type()) || !trains ||
      !(keep >= 0 && keep <= 1)) {
    return {};
  }
  const at::Tensor mask = laid_out_as(input, below(from, input.sizes(), keep));
  const auto work = input.element_size() < 4 ? at::kFloat : input.scalar_type();
  // A product, not a selection: a dropped infinity is NaN, as in PyTorch.
  const at::Tensor kept = at::mul(input.to(work), mask).mul_(keep == 0 ? 0.0 : 1.0 / keep);
  return {{kept.to(input.scalar_type()), mask}, kept.numel()};
}

// ---- of all weights, and of all numbers -------------------------------------------------

bool are_probabilities(const at::Tensor& weights) {
  const auto [least, most] = weights.aminmax(); // NaN is both
  return least.item<double>() >= 0 && std::isfinite(most.item<double>()) &&
      weights.sum(-1).min().item<double>() > 0;
}

Drawn draw_multinomial(const OpInfo& info, const RandomDraw& from, Arguments arguments) {
  constexpr int64_t kMostCategories = 1 << 24; // that PyTorch's kernel takes
  at::Tensor weights = arguments[0].toTensor();
  const int64_t samples = arguments[1].toInt();
  const bool inverted = arguments[2].toBool() && samples > 1;
  if (!weights.is_floating_point() || weights.dim() < 1 || weights.dim() > 2 || samples < 1 ||
      weights.numel() == 0 || (!inverted && samples > weights.size(-1)) ||
      weights.size(-1) > kMostCategories || !are_probabilities(weights)) {
    return {};
  }
  if (weights.element_size() < 4) {
    weights = weights.to(at::kFloat);
  }
  at::Tensor found;
  if (inverted) {
    c10::DimVector sizes(weights.sizes().begin(), weights.sizes().end());
    sizes.back() = samples;
    const at::Tensor sums = weights.cumsum(-1);
    const at::Tensor total = sums.narrow(-1, sums.size(-1) - 1, 1);
    const at::Tensor last = sums.ge(total).to(at::kByte).argmax(-1, true);
    const at::Tensor targets = uniform({from, sizes, weights.scalar_type()}, 0, 1).mul_(total);
    found = at::searchsorted(sums, targets, false, true).minimum(last);
  } else {
    // An exponential race, of negative speeds: the fastest are the least.
    const at::Tensor speeds =
        weights.div(open_unit({from, weights.sizes(), weights.scalar_type()}).log_());
    found = samples == 1 ? speeds.argmin(-1, true)
                         : std::get<1>(speeds.topk(samples, -1, /*largest=*/false));
  }
  const int64_t count = std::max(weights.numel(), found.numel());
  const at::Tensor out = written_by(info, arguments);
  if (!out.defined()) {
    return {{found}, count};
  }
  return out.scalar_type() == at::kLong && out.sizes() == found.sizes()
      ? Drawn{{out.copy_(found)}, count}
      : Drawn{};
}

Drawn draw_permutation(const OpInfo& info, const RandomDraw& from, Arguments arguments) {
  const int64_t count = arguments[0].toInt();
  const at::Tensor out = written_by(info, arguments);
  const at::ScalarType dtype =
      out.defined() ? out.scalar_type() : asked_dtype(info, arguments).value_or(at::kLong);
  if (count < 0 || count > kLargestPermutation || dtype == at::kBool || at::isComplexType(dtype) ||
      (out.defined() && out.sizes() != c10::IntArrayRef(count))) {
    return {}; // what is resized the kernel resizes
  }
  at::native::check_supported_max_int_with_precision(count, at::empty({0}, dtype));
  const at::Tensor found = permutation(from, count);
  return {{out.defined() ? out.copy_(found) : found.to(dtype)}, count};
}

Drawn drawn_by(const OpInfo& info, const RandomDraw& from, Arguments arguments) {
  switch (info.draws) {
    case OpInfo::Draws::Elements:
      return info.base.starts_with("rrelu") ? draw_rrelu(info, from, arguments)
                                            : draw_each_element(info, from, arguments);
    case OpInfo::Draws::Dropout: return draw_dropout(info, from, arguments);
    case OpInfo::Draws::Samples: return draw_multinomial(info, from, arguments);
    case OpInfo::Draws::Permutation: return draw_permutation(info, from, arguments);
    default: return {};
  }
}

} // namespace

bool draw_on_host(const OpInfo& info, c10::Device device, torch::jit::Stack* stack) {
  if (info.draws == OpInfo::Draws::No) {
    return false;
  }
  const Arguments arguments = torch::jit::last(*stack, info.kinds.size());
  const auto place = static_cast<size_t>(info.generator);
  at::Generator generator = info.generator >= 0 && arguments[place].isGenerator()
      ? arguments[place].toGenerator()
      : default_generator(device.index());
  if (!generator.device().is_privateuseone()) {
    return false;
  }
  const Drawn drawn = drawn_by(info, draw(generator, 0), arguments);
  if (drawn.results.empty()) {
    return false;
  }
  draw(generator, static_cast<uint64_t>(std::max<int64_t>(drawn.count, 1)));
  torch::jit::drop(*stack, info.kinds.size());
  stack->insert(stack->end(), drawn.results.begin(), drawn.results.end());
  return true;
}

} // namespace fuse
