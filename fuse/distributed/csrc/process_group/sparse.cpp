// Sums of coordinate tensors over the ranks.
#include <ATen/ops/_sparse_coo_tensor_unsafe.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/copy_sparse_to_sparse.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>

#include <numeric>

#include "process_group/arguments.h"
#include "process_group/group.h"
#include "transport/gil.h"

namespace fuse::distributed {

// The rows of all ranks behind one another; `counts` says how many of each.
at::Tensor Group::gather_rows(
    const at::Tensor& own,
    const std::vector<int64_t>& counts,
    const c10d::AllgatherOptions& options) {
  Lists parts(1);
  for (const int64_t count : counts) {
    auto sizes = own.sizes().vec();
    sizes[0] = count;
    parts[0].push_back(at::empty(sizes, own.options()));
  }
  Tensors input{own.contiguous()};
  allgather(parts, input, options)->wait();
  return at::cat(parts[0]);
}

// How many elements a rank has is data, so that the call returns when all is done: first everybody
// learns the counts, then everybody's indices and values go to everybody, as with gloo.
Group::Pending Group::allreduce_sparse(at::Tensor& tensor, const c10d::AllreduceOptions& options) {
  const bool mean = options.reduceOp == c10d::ReduceOp::AVG;
  TORCH_CHECK_VALUE(
      mean || options.reduceOp == c10d::ReduceOp::SUM,
      "all_reduce: of sparse tensors there are sums and means only; call to_dense() first");
  TORCH_CHECK_VALUE(
      tensor.layout() == c10::kSparse,
      "all_reduce: dense and coordinate tensors only, not ",
      tensor.layout(),
      "; call to_sparse_coo() first");
  const GilRelease released; // which a thread that carries the calls out may need
  const at::Tensor own = tensor.coalesce();
  c10d::AllgatherOptions gather;
  gather.timeout = options.timeout;
  gather.asyncOp = false;
  const std::vector<int64_t> one(static_cast<size_t>(size_), 1);
  const at::Tensor count =
      at::full({1}, own._nnz(), own.values().options().dtype(c10::ScalarType::Long));
  const at::Tensor on_host = gather_rows(count, one, gather).cpu();
  const auto* first = on_host.const_data_ptr<int64_t>();
  const std::vector<int64_t> counts(first, first + size_);
  if (std::accumulate(counts.begin(), counts.end(), int64_t{0}) != 0) {
    const at::Tensor indices = gather_rows(own.indices().t(), counts, gather).t();
    const at::Tensor values = gather_rows(own.values(), counts, gather);
    const at::Tensor all = at::_sparse_coo_tensor_unsafe(
        indices.contiguous(), mean ? values / size_ : values, own.sizes());
    at::copy_sparse_to_sparse_(tensor, all.coalesce());
  }
  auto done =
      c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
  done->markCompleted(c10::IValue(Tensors{tensor}));
  return c10d::Work::create_from_future(done);
}

} // namespace fuse::distributed
