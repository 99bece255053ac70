#include "cpu_exec/host_distributions.h"

#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_complex.h>

#include <bit>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "cpu_exec/host_philox.h"
#include "cpu_exec/host_rejection.h"

namespace fuse {

namespace {

using Numbers = c10::ArrayRef<c10::IValue>;

// ---- uniform and normal -----------------------------------------------------------------

// What `real` draws, and of a complex number a pair of it. Undefined for integers.
template <typename Real>
at::Tensor real_or_pairs(const Draw& draw, const Real& real) {
  const at::ScalarType part = c10::toRealValueType(draw.dtype);
  if (digits_of(part) == 0 || draw.dtype == at::kComplexHalf) {
    return {};
  }
  if (part == draw.dtype) {
    return real(draw);
  }
  c10::DimVector sizes(draw.sizes.begin(), draw.sizes.end());
  sizes.push_back(2);
  return at::view_as_complex(real({draw.from, sizes, part}));
}

template <typename... Factors>
[[gnu::always_inline]] inline float horner(float x, Factors... factors) {
  float sum = 0;
  ((sum = sum * x + factors), ...);
  return sum;
}

// The logarithm in place of std::log, which is not vectorised: of 2**power * m, m from 2/3 to 4/3,
// as 2 artanh((m - 1) / (m + 1)) by its series, whose next term is below 2e-9.
[[gnu::always_inline]] inline float logarithm(float x) {
  const auto bits = std::bit_cast<int32_t>(x);
  const int32_t power = (bits - std::bit_cast<int32_t>(2.0f / 3)) & ~0x7FFFFF; // times 2**23
  const auto m = std::bit_cast<float>(bits - power);
  const float s = (m - 1) / (m + 1);
  return static_cast<float>(power) * 0x1.62E43p-24f + // log(2) * 2**-23
      s * horner(s * s, 2.0f / 9, 2.0f / 7, 2.0f / 5, 2.0f / 3, 2.0f);
}

// Normal by inversion: Giles' polynomials ("Approximating the erfinv function", GPU Computing Gems,
// 2010, table 5).
[[gnu::always_inline]] inline float normal_of(uint32_t word) {
  const auto odd = static_cast<int32_t>((word >> 8) << 1 | 1);
  const float x = static_cast<float>(odd - (1 << 24)) * 0x1p-24f;
  const float w = -logarithm(1 - x * x);
  const float centre = horner(
      w - 2.5f,
      2.81022636e-08f,
      3.43273939e-07f,
      -3.5233877e-06f,
      -4.39150654e-06f,
      0.00021858087f,
      -0.00125372503f,
      -0.00417768164f,
      0.246640727f,
      1.50140941f);
  const float tail = horner(
      std::sqrt(w) - 3.0f,
      -0.000200214257f,
      0.000100950558f,
      0.00134934322f,
      -0.00367342844f,
      0.00573950773f,
      -0.0076224613f,
      0.00943887047f,
      1.00167406f,
      2.83297682f);
  return x * (w < 5 ? centre : tail) * 0x1.6A09E6p+0f; // sqrt(2)
}

FUSE_FOR_EACH_TARGET
void make_normals(const Words& words, float std, float mean, float* made) {
  const uint32_t* const in = words.data();
  for (size_t at = 0; at < kBatch; ++at) {
    made[at] = normal_of(in[at]) * std + mean;
  }
}

// In place.
at::Tensor scaled(const at::Tensor& made, double factor, double shift) {
  made.mul_(factor);
  return shift == 0 ? made : made.add_(shift);
}

at::Tensor normal(const Draw& draw, double mean, double std) {
  if (draw.dtype != at::kDouble) {
    return draw_batches<uint32_t, float>(
        draw.from, draw.sizes, [=](const Words& words, float* made) {
          make_normals(words, static_cast<float>(std), static_cast<float>(mean), made);
        });
  }
  const at::Tensor x = draw_each<uint64_t, double>(draw.from, draw.sizes, [](uint64_t bits) {
    const auto odd = static_cast<int64_t>((bits >> 11) << 1 | 1);
    return static_cast<double>(odd - (int64_t{1} << 53)) * 0x1p-53;
  });
  return scaled(x.erfinv_(), std::sqrt(2.0) * std, mean);
}

at::Tensor draw_unit(const Draw& draw, Numbers) {
  return real_or_pairs(draw, [](const Draw& real) { return uniform(real, 0, 1); });
}

at::Tensor draw_uniform(const Draw& draw, Numbers numbers) {
  const double low = numbers[0].toDouble();
  const double high = numbers[1].toDouble();
  return real_or_pairs(draw, [&](const Draw& real) {
    if (low != 0 || high != 1) {
      at::empty({0}, real.dtype).uniform_(low, high); // PyTorch's errors, by its kernel
    }
    return uniform(real, low, high);
  });
}

// Each part of a complex number has half of the variance, and the mean.
at::Tensor draw_normal_of(const Draw& draw, double mean, double std) {
  if (!(std >= 0)) {
    return {};
  }
  const double part = at::isComplexType(draw.dtype) ? std * std::sqrt(0.5) : std;
  return real_or_pairs(draw, [&](const Draw& real) { return normal(real, mean, part); });
}

at::Tensor draw_standard_normal(const Draw& draw, Numbers) {
  return draw_normal_of(draw, 0, 1);
}

// Of a mean and a standard deviation, each one number or a tensor.
at::Tensor draw_normal(const Draw& draw, Numbers numbers) {
  const c10::IValue& mean = numbers[0];
  const c10::IValue& std = numbers[1];
  if (!mean.isTensor() && !std.isTensor()) {
    return draw_normal_of(draw, mean.toDouble(), std.toDouble());
  }
  at::Tensor made = draw_normal_of(draw, 0, std.isTensor() ? 1 : std.toDouble());
  const auto is_complex = [](const c10::IValue& value) {
    return value.isTensor() && value.toTensor().is_complex();
  };
  if (!made.defined() || is_complex(std) || (is_complex(mean) && !made.is_complex())) {
    return {};
  }
  if (std.isTensor()) {
    const at::Tensor& each = std.toTensor();
    if (each.numel() != 0 && !(each.min().item<double>() >= 0)) {
      return {};
    }
    made.mul_(each.to(made.scalar_type()));
  }
  return mean.isTensor() ? made.add_(mean.toTensor().to(made.scalar_type()))
                         : made.add_(mean.toDouble());
}

// ---- other continuous distributions -----------------------------------------------------

at::Tensor draw_log_normal(const Draw& draw, Numbers numbers) {
  const double std = numbers[1].toDouble();
  return digits_of(draw.dtype) == 0 || !(std > 0)
      ? at::Tensor()
      : draw_normal_of(draw, numbers[0].toDouble(), std).exp_();
}

at::Tensor draw_exponential(const Draw& draw, Numbers numbers) {
  const double rate = numbers[0].toDouble();
  return digits_of(draw.dtype) == 0 || !(rate > 0) ? at::Tensor()
                                                   : open_unit(draw).log_().div_(-rate);
}

// In float64: float32 has no room near the poles.
at::Tensor draw_cauchy(const Draw& draw, Numbers numbers) {
  const double sigma = numbers[1].toDouble();
  if (digits_of(draw.dtype) == 0 || !(sigma > 0)) {
    return {};
  }
  const at::Tensor u = open_unit({draw.from, draw.sizes, at::kDouble});
  return scaled(u.sub_(0.5).mul_(M_PI).tan_(), sigma, numbers[0].toDouble());
}

// ---- discrete distributions -------------------------------------------------------------

at::Tensor draw_geometric(const Draw& draw, Numbers numbers) {
  const double p = numbers[0].toDouble();
  if (!(p > 0 && p < 1) ||
      (digits_of(draw.dtype) == 0 && !at::isIntegralType(draw.dtype, /*includeBool=*/false))) {
    return {};
  }
  const at::Tensor u = open_unit({draw.from, draw.sizes, at::kDouble});
  return u.log_().div_(std::log1p(-p)).ceil_().clamp_min_(1);
}

// With one probability, or one for each element.
at::Tensor draw_bernoulli(const Draw& draw, Numbers numbers) {
  if (!numbers[0].isTensor()) {
    const double p = numbers[0].toDouble();
    return p >= 0 && p <= 1 ? below(draw.from, draw.sizes, p) : at::Tensor();
  }
  at::Tensor p = numbers[0].toTensor();
  if (digits_of(p.scalar_type()) == 0) {
    return {};
  }
  if (p.numel() != 0) {
    const auto [least, most] = p.aminmax();
    if (!(least.item<double>() >= 0 && most.item<double>() <= 1)) {
      return {};
    }
  }
  p = p.element_size() < 4 ? p.to(at::kFloat) : p;
  return uniform({draw.from, draw.sizes, p.scalar_type()}, 0, 1).lt(p);
}

// The largest that `random_` draws without a bound: the dtype's, or the last exact integer.
uint64_t largest_of(at::ScalarType dtype) {
  if (at::isFloatingType(dtype)) {
    return uint64_t{1} << digits_of(dtype);
  }
  const uint64_t all = ~uint64_t{0} >> (64 - 8 * c10::elementSize(dtype));
  return dtype == at::kBool ? 1 : c10::isSignedType(dtype) ? all >> 1 : all;
}

// Integers from `low` on, as int64 that wraps around; `more` is how many others there are. Up to
// 2**32 of them are one word, scaled, and more the remainder of two, as in PyTorch.
at::Tensor integers(const Draw& draw, uint64_t low, uint64_t more) {
  const uint64_t span = more + 1; // 0: all
  if (more >> 32 == 0) {
    return draw_each<uint32_t, int64_t>(draw.from, draw.sizes, [=](uint32_t bits) {
      return static_cast<int64_t>((bits * span >> 32) + low);
    });
  }
  return draw_each<uint64_t, int64_t>(draw.from, draw.sizes, [=](uint64_t bits) {
    return static_cast<int64_t>((span == 0 ? bits : bits % span) + low);
  });
}

at::Tensor draw_integers(const Draw& draw, Numbers numbers) {
  if (digits_of(draw.dtype) == 0 && !at::isIntegralType(draw.dtype, /*includeBool=*/true)) {
    return {};
  }
  if (numbers.empty()) {
    return integers(draw, 0, largest_of(draw.dtype));
  }
  const bool by_tensor = numbers.back().isTensor();
  if (by_tensor && numbers.back().toTensor().dim() != 0) {
    return {};
  }
  const int64_t low = numbers.size() > 1 ? numbers[0].toInt() : 0;
  const auto high =
      by_tensor ? numbers.back().toTensor().item<int64_t>() : numbers.back().toOptional<int64_t>();
  at::empty({0}, draw.dtype).random_(low, high); // PyTorch's errors and warnings
  if (by_tensor) {
    const auto span = static_cast<uint64_t>(*high);
    return draw_each<uint64_t, int64_t>(
        draw.from, draw.sizes, [=](uint64_t bits) { return static_cast<int64_t>(bits % span); });
  }
  const auto first = static_cast<uint64_t>(low);
  const uint64_t last = high ? static_cast<uint64_t>(*high) - 1 : largest_of(draw.dtype);
  return integers(draw, first, last - first);
}

} // namespace

// ---- what others draw by ----------------------------------------------------------------

int digits_of(at::ScalarType dtype) {
  switch (dtype) {
    case at::kDouble: return 53;
    case at::kFloat: return 24;
    case at::kHalf: return 11;
    case at::kBFloat16: return 8;
    default: return 0;
  }
}

at::Tensor uniform(const Draw& draw, double low, double high) {
  if (draw.dtype == at::kDouble) {
    const double span = high - low;
    return draw_each<uint64_t, double>(draw.from, draw.sizes, [=](uint64_t bits) {
      return static_cast<double>(static_cast<int64_t>(bits >> 11)) * 0x1p-53 * span + low;
    });
  }
  const int dropped = 32 - digits_of(draw.dtype);
  const float step = std::ldexp(1.0f, dropped - 32);
  const auto span = static_cast<float>(high - low);
  const auto first = static_cast<float>(low);
  return draw_each<uint32_t, float>(draw.from, draw.sizes, [=](uint32_t bits) {
    return static_cast<float>(static_cast<int32_t>(bits >> dropped)) * step * span + first;
  });
}

at::Tensor open_unit(const Draw& draw) {
  if (draw.dtype == at::kDouble) {
    return draw_each<uint64_t, double>(draw.from, draw.sizes, [](uint64_t bits) {
      return static_cast<double>(static_cast<int64_t>((bits >> 12) << 1 | 1)) * 0x1p-53;
    });
  }
  return draw_each<uint32_t, float>(draw.from, draw.sizes, [](uint32_t bits) {
    return static_cast<float>(static_cast<int32_t>((bits >> 9) << 1 | 1)) * 0x1p-24f;
  });
}

at::Tensor below(const RandomDraw& from, at::IntArrayRef sizes, double probability) {
  const auto limit = static_cast<uint32_t>(std::ceil(probability * 0x1p24));
  return draw_each<uint32_t, bool>(from, sizes, [=](uint32_t bits) { return bits >> 8 < limit; });
}

at::Tensor draw_elements(const std::string& base, const Draw& draw, Numbers numbers) {
  static const auto* table =
      new std::unordered_map<std::string, at::Tensor (*)(const Draw&, Numbers)>{
          {"_standard_gamma", draw_gamma},
          {"bernoulli", draw_bernoulli},
          {"binomial", draw_binomial},
          {"cauchy", draw_cauchy},
          {"exponential", draw_exponential},
          {"geometric", draw_geometric},
          {"log_normal", draw_log_normal},
          {"normal", draw_normal},
          {"normal_functional", draw_normal},
          {"poisson", draw_poisson},
          {"rand", draw_unit},
          {"rand_like", draw_unit},
          {"randint", draw_integers},
          {"randint_like", draw_integers},
          {"randn", draw_standard_normal},
          {"randn_like", draw_standard_normal},
          {"random", draw_integers},
          {"uniform", draw_uniform},
  };
  const auto found = table->find(base);
  return found == table->end() ? at::Tensor() : found->second(draw, numbers);
}

} // namespace fuse
