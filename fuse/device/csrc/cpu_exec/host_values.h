// Host values: values of the device in host memory.
#pragma once

#include <ATen/core/Tensor.h>

#include <optional>

#include "runtime/buffer.h"
#include "runtime/host_memory.h"
#include "tracing/cut_reason.h"

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

// The whole buffer's memory, as a dense tensor of some dtype and shape. What is fetched for it
// may be `kept` with the value, for uncompiled calls read the same weights over and over. A storage
// grown past its value (resize_) is padded with zeros. Cuts if the value is pending.
at::Tensor memory_behind(Buffer* buffer, bool kept);
// The value of a device tensor as a CPU tensor of its own sizes and strides; not to be written.
// Cuts if the value is pending.
at::Tensor value_on_host(const at::Tensor& tensor);
// The same for the program that reads it: ends an uncompiled segment. Shares memory with the
// backend where the platform is the CPU.
at::Tensor host_tensor(const at::Tensor& tensor);
// The same for a call that runs uncompiled: what is made for it is kept with the value where the
// next such call will read it again.
at::Tensor operand_on_host(const at::Tensor& tensor);
// The value of a device tensor where the host has it, just as it is: what ran uncompiled. Cuts
// nothing, and ends no uncompiled segment; not to be written.
std::optional<at::Tensor> value_here(const at::Tensor& tensor);
// A device tensor whose value is `result`, a dense CPU tensor that nobody else will write to.
at::Tensor from_host(at::Tensor result, int8_t device);
// Whether a kernel is not implemented for the dtypes of a call, where the device's rule may be, or
// found no memory, which the recorder says in the device's words.
bool is_kernels_limit(const c10::Error& error);

} // namespace fuse
