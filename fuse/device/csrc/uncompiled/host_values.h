// Values of the device in host memory.
#pragma once

#include <ATen/core/Tensor.h>

#include "recorder/recorder.h"

namespace fuse {

// Why this thread reads, if a read cuts: for as long as this lives.
class ReadReason {
 public:
  explicit ReadReason(CutReason reason);
  ~ReadReason();
  ReadReason(const ReadReason&) = delete;
  ReadReason& operator=(const ReadReason&) = delete;

 private:
  CutReason before_;
};

// The bytes of a backend array, kept alive by the tensor; waits for them, and takes the GIL for it.
at::Tensor fetch(PyObject* array);
// As many bytes as asked for: those of `bytes`, then zeros.
at::Tensor padded(const at::Tensor& bytes, size_t nbytes);
// The whole buffer's memory, as a dense tensor of some dtype and shape. What is fetched for it
// may be `kept` with the value, for uncompiled calls read the same weights over and over. A storage
// grown past its value (resize_) is padded with zeros. Cuts if the value is pending.
at::Tensor memory_behind(Buffer* buffer, bool kept);
// What `tensor` is a view of, in host memory: its sizes, strides and offset over `dense`.
at::Tensor view_of(const at::Tensor& tensor, const at::Tensor& dense);
// The value of a device tensor as a CPU tensor of its own sizes and strides; not to be written.
// Cuts if the value is pending.
at::Tensor value_on_host(const at::Tensor& tensor);
// The same for the program that reads it: ends an uncompiled segment. Shares memory with the
// backend where the platform is the CPU.
at::Tensor host_tensor(const at::Tensor& tensor);
// The same for a call that runs uncompiled: what is made for it is kept with the value where the
// next such call will read it again.
at::Tensor operand_on_host(const at::Tensor& tensor);
// A device tensor whose value is `result`, a dense CPU tensor that nobody else will write to.
at::Tensor from_host(at::Tensor result, int8_t device);
// Whether a kernel is not implemented for the dtypes of a call, where the device's rule may be, or
// found no memory, which the recorder says in the device's words.
bool is_kernels_limit(const c10::Error& error);
// A CPU tensor over the memory of another, which is contiguous, with other sizes.
at::Tensor reshaped(const at::Tensor& host, c10::IntArrayRef sizes);
// A CPU matrix, its rows and columns exchanged; as a view of PyTorch's, without the dispatcher.
at::Tensor transposed(const at::Tensor& host);
// The bytes behind a CPU tensor that is dense in memory, as a flat uint8 tensor sharing them.
at::Tensor bytes_of(const at::Tensor& tensor);
// Every byte of the memory that `tensor` is a part of, from byte `start` on.
at::Tensor whole_storage(const at::Tensor& tensor, int64_t start);
// A backend array of a value that is in host memory only. GIL held.
PyRef to_backend(const ArrayHandle& handle, uint32_t layout, int8_t device);

} // namespace fuse
