#include "cpu_exec/host_rejection.h"

#include <ATen/Parallel.h>
#include <ATen/native/Math.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

#include "cpu_exec/host_philox.h"

namespace fuse {

namespace {

constexpr uint32_t kLast = UINT32_MAX; // the attempt of numbers that are not rejected
constexpr uint32_t kMostAttempts = 256; // more than any element has
constexpr int kMostSteps = 128;
constexpr double kLarge = 10; // expected counts from which rejection is faster

// Two uniform numbers in (0, 1), odd multiples of 2**-digits.
template <typename T>
struct Units {
  T first, second;
};

// The words of an element: a block of its own for each attempt.
struct Source {
  uint64_t seed, counter;

  template <typename T>
  Units<T> attempt(uint32_t number) const {
    const auto words = block_of(seed, counter, number);
    return {
        unit<T>(words[0] | uint64_t{words[1]} << 32), unit<T>(words[2] | uint64_t{words[3]} << 32)};
  }

 private:
  template <typename T>
  static T unit(uint64_t bits) {
    constexpr int kDigits = std::numeric_limits<T>::digits;
    const uint64_t odd = (bits >> (65 - kDigits)) << 1 | 1;
    return std::ldexp(static_cast<T>(odd), -kDigits);
  }
};

double log_gamma(double x) {
  int sign = 0;
  return lgamma_r(x, &sign); // std::lgamma writes a global variable
}

// Marsaglia and Tsang, "A simple method for generating gamma variables" (2000).
template <typename T>
T gamma_of(const Source& source, T alpha) {
  if (!(alpha >= 0) || !std::isfinite(alpha)) {
    return std::numeric_limits<T>::quiet_NaN();
  }
  const T d = (alpha < 1 ? alpha + 1 : alpha) - T(1.0 / 3);
  const T c = 1 / std::sqrt(9 * d);
  T drawn = std::numeric_limits<T>::quiet_NaN();
  for (uint32_t number = 0; number < kMostAttempts; ++number) {
    const auto [first, second] = source.attempt<T>(number);
    const double inverse = calc_erfinv(static_cast<double>(2 * first - 1));
    const T x = static_cast<T>(inverse * std::sqrt(2.0));
    const T root = c * x + 1;
    const T v = root * root * root;
    if (v > 0 && std::log(second) < x * x / 2 + d - d * v + d * std::log(v)) {
      drawn = d * v;
      break;
    }
  }
  if (alpha < 1) {
    drawn *= std::exp(std::log(source.attempt<T>(kLast).first) / alpha);
  }
  return std::max(alpha == 0 ? T(0) : drawn, std::numeric_limits<T>::min());
}

// Inversion step by step: `following(p, k)` is the probability of k, after that of k - 1.
template <typename Following>
double steps_below(double unit, double first, const Following& following) {
  double total = first;
  double p = first;
  int step = 0;
  while (total < unit && step < kMostSteps) {
    ++step;
    p = following(p, step);
    total += p;
  }
  return step;
}

// Else PTRS of Hormann, "The transformed rejection method for generating Poisson random variables"
// (1993).
double poisson_of(const Source& source, double rate) {
  if (!(rate >= 0) || !std::isfinite(rate)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (rate < kLarge) {
    return steps_below(source.attempt<double>(kLast).first, std::exp(-rate), [=](double p, int k) {
      return p * rate / k;
    });
  }
  const double b = 0.931 + 2.53 * std::sqrt(rate);
  const double a = -0.059 + 0.02483 * b;
  const double inverse = std::log(1.1239 + 1.1328 / (b - 3.4));
  for (uint32_t number = 0; number < kMostAttempts; ++number) {
    const auto [first, v] = source.attempt<double>(number);
    const double u = first - 0.5;
    const double us = 0.5 - std::abs(u);
    const double k = std::floor((2 * a / us + b) * u + rate + 0.43);
    if (us >= 0.07 && v <= 0.9277 - 3.6224 / (b - 2)) {
      return k;
    }
    if (k >= 0 && (us >= 0.013 || v <= us) &&
        std::log(v) + inverse - std::log(a / (us * us) + b) <=
            k * std::log(rate) - rate - log_gamma(k + 1)) {
      return k;
    }
  }
  return std::numeric_limits<double>::quiet_NaN();
}

// Else BTRS of Hormann, "The generation of binomial random variates" (1993); of q, at most a half.
double successes_of(const Source& source, double n, double q) {
  if (n * q < kLarge) {
    const double odds = q / (1 - q);
    const double found = steps_below(
        source.attempt<double>(kLast).first, std::exp(n * std::log1p(-q)), [=](double p, int k) {
          return p * odds * (n - k + 1) / k;
        });
    return std::min(found, n);
  }
  const double spread = std::sqrt(n * q * (1 - q));
  const double b = 1.15 + 2.53 * spread;
  const double a = -0.0873 + 0.0248 * b + 0.01 * q;
  const double alpha = (2.83 + 5.1 / b) * spread;
  const double mode = std::floor((n + 1) * q);
  const auto arrangements = [n](double k) { return log_gamma(k + 1) + log_gamma(n - k + 1); };
  for (uint32_t number = 0; number < kMostAttempts; ++number) {
    const auto [first, v] = source.attempt<double>(number);
    const double u = first - 0.5;
    const double us = 0.5 - std::abs(u);
    const double k = std::floor((2 * a / us + b) * u + n * q + 0.5);
    if (k < 0 || k > n) {
      continue;
    }
    if ((us >= 0.07 && v <= 0.92 - 4.2 / b) ||
        std::log(v * alpha / (a / (us * us) + b)) <=
            arrangements(mode) - arrangements(k) + (k - mode) * std::log(q / (1 - q))) {
      return k;
    }
  }
  return std::numeric_limits<double>::quiet_NaN();
}

double binomial_of(const Source& source, double n, double p) {
  const double q = p > 0.5 ? 1 - p : p;
  if (!(n >= 0 && q >= 0) || !std::isfinite(n)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  const double found = successes_of(source, n, q);
  return p > 0.5 ? n - found : found;
}

template <typename T, typename Make>
at::Tensor draw_rejecting(const Draw& draw, const Make& make) {
  constexpr int64_t kGrain = 1 << 10; // elements that are worth a thread
  at::Tensor drawn = at::empty(draw.sizes, c10::CppTypeToScalarType<T>::value);
  auto* const out = drawn.mutable_data_ptr<T>();
  at::parallel_for(0, drawn.numel(), kGrain, [&](int64_t begin, int64_t end) {
    for (int64_t at = begin; at < end; ++at) {
      out[at] = make(Source{draw.from.seed, draw.from.offset + static_cast<uint64_t>(at)}, at);
    }
  });
  return drawn;
}

using Numbers = c10::ArrayRef<c10::IValue>;

bool are_floats(Numbers numbers) {
  return std::all_of(numbers.begin(), numbers.end(), [](const c10::IValue& number) {
    return digits_of(number.toTensor().scalar_type()) != 0;
  });
}

at::Tensor doubles(const Draw& draw, const c10::IValue& number) {
  return number.toTensor().to(at::kDouble).expand(draw.sizes).contiguous();
}

template <typename T>
at::Tensor gammas(const Draw& draw, const at::Tensor& alpha) {
  const at::Tensor each = alpha.to(c10::CppTypeToScalarType<T>::value).contiguous();
  const T* const in = each.const_data_ptr<T>();
  return draw_rejecting<T>(
      draw, [in](const Source& source, int64_t at) { return gamma_of<T>(source, in[at]); });
}

} // namespace

at::Tensor draw_gamma(const Draw& draw, Numbers numbers) {
  const at::Tensor& alpha = numbers[0].toTensor();
  if (!are_floats(numbers)) {
    return {};
  }
  return alpha.scalar_type() == at::kDouble ? gammas<double>(draw, alpha)
                                            : gammas<float>(draw, alpha);
}

at::Tensor draw_poisson(const Draw& draw, Numbers numbers) {
  if (!are_floats(numbers)) {
    return {};
  }
  const at::Tensor rates = doubles(draw, numbers[0]);
  const double* const in = rates.const_data_ptr<double>();
  return draw_rejecting<double>(
      draw, [in](const Source& source, int64_t at) { return poisson_of(source, in[at]); });
}

at::Tensor draw_binomial(const Draw& draw, Numbers numbers) {
  if (!are_floats(numbers)) {
    return {};
  }
  const at::Tensor counts = doubles(draw, numbers[0]);
  const at::Tensor probabilities = doubles(draw, numbers[1]);
  const double* const n = counts.const_data_ptr<double>();
  const double* const p = probabilities.const_data_ptr<double>();
  return draw_rejecting<double>(
      draw, [n, p](const Source& source, int64_t at) { return binomial_of(source, n[at], p[at]); });
}

} // namespace fuse
