// CPU tensors over memory of the host, made without the dispatcher.
#pragma once

#include <ATen/core/Tensor.h>

namespace fuse {

// As many bytes as asked for: those of `bytes`, then zeros.
at::Tensor padded(const at::Tensor& bytes, size_t nbytes);
// What `tensor` is a view of, in host memory: its sizes, strides and offset over `dense`.
at::Tensor view_of(const at::Tensor& tensor, const at::Tensor& dense);
// A CPU tensor over the memory of another, which is contiguous, with other sizes.
at::Tensor reshaped(const at::Tensor& host, c10::IntArrayRef sizes);
// A CPU matrix, its rows and columns exchanged.
at::Tensor transposed(const at::Tensor& host);
// The bytes behind a CPU tensor that is dense in memory, as a flat uint8 tensor sharing them.
at::Tensor bytes_of(const at::Tensor& tensor);
// Every byte of the memory that `tensor` is a part of, from byte `start` on.
at::Tensor whole_storage(const at::Tensor& tensor, int64_t start);

} // namespace fuse
