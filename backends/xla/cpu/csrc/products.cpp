// Matrix products by PyTorch's CPU library as an XLA custom call, for those that XLA's compiler
// runs slowly. Called on XLA's threads, without the GIL; the matrices, or the rows or columns of a
// single one, are split over them, and each share runs on one thread.
#include <ATen/core/Tensor.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>

#include <algorithm>
#include <vector>

#include "handler.h"
#include "laid.h"
#include "shares.h"
#include "xla/ffi/api/ffi.h"

namespace fuse {
namespace {

namespace ffi = xla::ffi;

// Multiplications of a share, some 20 us. One share a thread, because the library packs the whole
// other operand anew for each: at 2 a thread a core does 0.9 to 0.95 of what it does with the
// product in one piece, at 4 as little as 0.75, which is more than a thread that wakes late costs.
constexpr double kShareProducts = 1 << 21;
constexpr int64_t kSharesPerThread = 1;

// Writes the share's part of x @ y to out, on this thread. Matrices are split, or of a single one
// the rows or the columns, whichever there are more of.
void multiply(
    const at::Tensor& x,
    const at::Tensor& y,
    const at::Tensor& out,
    int64_t share,
    int64_t shares) {
  const bool batch = out.dim() > 2;
  const int64_t dimension = batch || out.size(0) >= out.size(1) ? 0 : 1;
  auto cut = [=](const at::Tensor& value) { return Shares::part(value, dimension, share, shares); };
  at::Tensor part = cut(out);
  if (batch) {
    at::bmm_out(part, cut(x), cut(y));
  } else {
    at::mm_out(part, dimension == 0 ? cut(x) : x, dimension == 1 ? cut(y) : y);
  }
}

// x[*, m, k] @ y[*, k, n]; the orders say how the operands lie in memory, the result is row-major.
ffi::Future product(
    ffi::ThreadPool pool,
    ffi::AnyBuffer x,
    ffi::AnyBuffer y,
    ffi::Result<ffi::AnyBuffer> out,
    Integers x_order,
    Integers y_order) {
  const at::Tensor left = laid(x, list(x_order));
  const at::Tensor right = laid(y, list(y_order));
  const at::Tensor result = dense(*out);
  const double work = static_cast<double>(result.numel()) * static_cast<double>(left.size(-1));
  const int64_t parts =
      result.dim() > 2 ? result.size(0) : std::max(result.size(0), result.size(1));
  const int64_t shares = Shares::count(pool, parts, work, kShareProducts, kSharesPerThread);
  return Shares::start(
      pool, shares, [=](int64_t share) { multiply(left, right, result, share, shares); });
}

// The operands and the result of one group: the rows (or columns) from `start` to `end`, and
// what the others have for the group.
struct Group {
  at::Tensor x;
  at::Tensor y;
  at::Tensor out;

  Group(
      const at::Tensor& x_whole,
      const at::Tensor& y_whole,
      const at::Tensor& out_whole,
      int64_t number,
      int64_t start,
      int64_t end) {
    const auto part = [=](const at::Tensor& whole, int64_t dimension) {
      return whole.dim() > 2 ? whole.select(0, number)
                             : whole.narrow(dimension, start, end - start);
    };
    // Of two matrices the sums are split, of a stack and a matrix the rows or the columns.
    const bool sums = out_whole.dim() > 2;
    x = part(x_whole, sums ? 1 : 0);
    y = part(y_whole, sums ? 0 : 1);
    out = part(out_whole, x_whole.dim() > 2 ? 1 : 0);
  }
};

// As `product`, but group after group: each ends where `ends` says and begins where the one
// before it ends. What lies in no group is 0.
ffi::Future grouped_product(
    ffi::ThreadPool pool,
    ffi::AnyBuffer x,
    ffi::AnyBuffer y,
    ffi::AnyBuffer ends,
    ffi::Result<ffi::AnyBuffer> out,
    Integers x_order,
    Integers y_order) {
  const at::Tensor left = laid(x, list(x_order));
  const at::Tensor right = laid(y, list(y_order));
  const at::Tensor result = dense(*out);
  const bool columns = left.dim() > 2;
  const int64_t split = columns ? right.size(1) : left.size(result.dim() > 2 ? 1 : 0);
  std::vector<Group> groups;
  int64_t start = 0;
  for (size_t number = 0; number < ends.element_count(); ++number) {
    const int64_t end = std::clamp<int64_t>(ends.typed_data<int32_t>()[number], start, split);
    groups.emplace_back(left, right, result, static_cast<int64_t>(number), start, end);
    start = end;
  }
  if (result.dim() == 2) {
    result.narrow(columns ? 1 : 0, start, split - start).zero_();
  }
  // Two stacks never come here, and a stack's matrices see a part of the other operand each.
  const double inner = static_cast<double>(result.dim() > 2 ? split : left.size(-1));
  const double work = inner * static_cast<double>(result.size(-2) * result.size(-1));
  const int64_t parts = std::max(result.size(-2), result.size(-1));
  const int64_t shares = Shares::count(pool, parts, work, kShareProducts, kSharesPerThread);
  return Shares::start(pool, shares, [=, groups = std::move(groups)](int64_t share) {
    for (const Group& group : groups) {
      multiply(group.x, group.y, group.out, share, shares);
    }
  });
}

} // namespace
} // namespace fuse

FUSE_HANDLER(product, "x_order", "y_order")
FUSE_HANDLER(grouped_product, "x_order", "y_order")
