#include "cpu_exec/host_call.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/List.h>
#include <ATen/ops/empty_strided.h>
#include <flush_subnormals.h>
#include <one_thread.h>

#include <algorithm>
#include <iterator>

#include "cpu_exec/host_draws.h"
#include "cpu_exec/host_values.h"
#include "runtime/device_index.h"
#include "runtime/generator.h"
#include "tracing/operand_summary.h"
#include "tracing/recorder.h"
#include "tracing/tensors_in.h"

namespace fuse {

namespace {

// One call on the host: which device tensors became which CPU tensors.
class HostCall {
 public:
  HostCall(const OpInfo& info, torch::jit::Stack* stack, HostRun run)
      : info_(info), stack_(stack), run_(run), start_(stack->size() - info.kinds.size()) {
    for (size_t at = start_; at < stack->size(); ++at) {
      originals_.push_back(std::move((*stack)[at]));
    }
    if (info.writes) {
      own_written();
    }
    for (size_t at = 0; at < originals_.size(); ++at) {
      (*stack_)[start_ + at] = to_host(originals_[at]);
      if (info_.written[at]) {
        hosts_.push_back((*stack_)[start_ + at]);
      }
    }
  }

  // Whether waking another thread costs more than it saves. It would go on spinning, too, on a
  // core that the backend's threads want.
  bool is_small() const {
    return elements_ <= kSmallCall;
  }

  // In place of the kernel, where it can be.
  bool draw() {
    return draw_on_host(info_, device_, stack_);
  }

  // The kernel draws from a CPU generator seeded by the device's own; the CPU's is not to move.
  void seed() {
    if (info_.generator < 0) {
      return;
    }
    c10::IValue& value = (*stack_)[start_ + static_cast<size_t>(info_.generator)];
    at::Generator generator =
        value.isGenerator() ? value.toGenerator() : default_generator(device_.index());
    if (generator.device().is_privateuseone()) {
      const RandomDraw state = fuse::draw(generator, 1);
      value = at::Generator(
          at::detail::createCPUGenerator(state.seed + 0x9E3779B97F4A7C15ull * (state.offset + 1)));
    }
  }

  // The stack ends with the call's arguments again.
  void give_up() {
    stack_->resize(start_);
    std::move(originals_.begin(), originals_.end(), std::back_inserter(*stack_));
  }

  // After the kernel: the stack holds its results.
  void finish() {
    size_t written = 0;
    for (size_t at = 0; at < originals_.size(); ++at) {
      if (info_.written[at]) {
        store_written(originals_[at], hosts_[written++]);
      }
    }
    const size_t first = stack_->size() - info_.returns.size();
    for (size_t at = 0; at < info_.returns.size(); ++at) {
      c10::IValue& value = (*stack_)[first + at];
      if (info_.returns[at].alias >= 0) {
        value = originals_[static_cast<size_t>(info_.returns[at].alias)];
      } else {
        value = to_device(std::move(value));
      }
    }
  }

 private:
  struct Owned {
    Buffer* buffer;
    at::Tensor bytes;
  };

  bool uncompiled() const {
    return run_ == HostRun::Uncompiled;
  }

  // Memory that the kernel may write, for every buffer it writes: the buffer's own where
  // nobody else can see it, else a copy.
  void own_written() {
    for (size_t at = 0; at < originals_.size(); ++at) {
      for_tensors(originals_[at], [&](const at::Tensor& tensor) {
        if (!tensor.defined() || !tensor.is_privateuseone()) {
          return;
        }
        device_ = tensor.device();
        if (!info_.written[at] || find(Buffer::of(tensor)) != nullptr) {
          return;
        }
        Buffer* buffer = Buffer::of(tensor);
        at::Tensor bytes = bytes_of(memory_behind(buffer, false));
        const bool fresh = !buffer->array.defined(); // just made: nobody else has seen it
        const bool in_place = fresh ||
            (uncompiled() && buffer->array.use_count() == 1 && buffer->array->writable_host() &&
             bytes.is_alias_of(buffer->array->host()));
        owned_.push_back({buffer, in_place ? std::move(bytes) : bytes.clone()});
      });
    }
  }

  const Owned* find(Buffer* buffer) const {
    for (const Owned& owned : owned_) {
      if (owned.buffer == buffer) {
        return &owned;
      }
    }
    return nullptr;
  }

  at::Tensor to_host(const at::Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_privateuseone()) {
      return tensor;
    }
    for (const auto& [original, made] : made_) {
      if (tensor.is_same(original)) {
        return made; // resized as out=, it is an operand of that size too
      }
    }
    device_ = tensor.device();
    const Owned* owned = find(Buffer::of(tensor));
    at::Tensor host = owned != nullptr ? view_of(tensor, owned->bytes)
        : uncompiled()                 ? operand_on_host(tensor)
                                       : value_on_host(tensor);
    elements_ += host.numel();
    read_.push_back(host.storage().data());
    if (info_.writes) {
      made_.emplace_back(tensor, host);
    }
    return host;
  }

  c10::IValue to_host(const c10::IValue& value) {
    if (value.isDevice() && value.toDevice().is_privateuseone()) {
      device_ = {c10::DeviceType::PrivateUse1, index_or_current(value.toDevice())};
      return c10::Device(c10::DeviceType::CPU);
    }
    return map_tensors(value, [this](const at::Tensor& tensor) { return to_host(tensor); });
  }

  void store_written(const c10::IValue& original, const c10::IValue& host) {
    c10::SmallVector<at::Tensor, 2> hosts;
    for_tensors(host, [&](const at::Tensor& tensor) { hosts.push_back(tensor); });
    size_t at = 0;
    for_tensors(original, [&](const at::Tensor& tensor) {
      const at::Tensor& written = hosts[at++];
      if (!tensor.defined() || !tensor.is_privateuseone()) {
        return;
      }
      Buffer* buffer = Buffer::of(tensor);
      const Owned* owned = find(buffer);
      if (written.sizes() == tensor.sizes() &&
          written.storage().is_alias_of(owned->bytes.storage())) {
        // The same one, unless the storage has grown past its value.
        const uint32_t layout = layout_of_part(*buffer, tensor.scalar_type(), buffer->nbytes);
        assign(buffer, owned->bytes, layout);
        return;
      }
      auto* impl = tensor.unsafeGetTensorImpl();
      if (!written.storage().is_alias_of(owned->bytes.storage())) {
        // The kernel gave its tensor other memory: so does the device.
        const at::Tensor moved = to_device(written);
        impl->set_storage_keep_dtype(moved.storage());
        impl->set_storage_offset(0);
        impl->set_sizes_and_strides(moved.sizes(), moved.strides());
        return;
      }
      // out= has another size now, in the same memory, which may have grown.
      const at::Tensor whole = whole_storage(written, owned->bytes.storage_offset());
      if (static_cast<size_t>(whole.numel()) > buffer->nbytes) {
        resize_storage(*impl->unsafe_storage().unsafeGetStorageImpl(), whole.numel());
      }
      impl->set_sizes_and_strides(written.sizes(), written.strides());
      assign(buffer, whole, layout_after_write(tensor, *buffer));
    });
  }

  void assign(Buffer* buffer, const at::Tensor& bytes, uint32_t layout) const {
    Recorder::global().assign(buffer, c10::make_intrusive<ArrayHandle>(bytes), layout);
  }

  c10::IValue to_device(c10::IValue value) {
    if (value.isTensor()) {
      return to_device(std::move(value).toTensor());
    }
    if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const c10::IValue& item : value.toListRef()) {
        list.push_back(to_device(item.toTensor()));
      }
      return list;
    }
    return value; // a number
  }

  bool is_operand(const at::Tensor& result) const {
    const void* memory = result.storage().data();
    return std::find(read_.begin(), read_.end(), memory) != read_.end();
  }

  at::Tensor to_device(at::Tensor result) {
    if (!result.defined()) {
      return result;
    }
    TORCH_CHECK(
        result.layout() == c10::Layout::Strided,
        "aten::",
        info_.name,
        " returns a ",
        result.layout(),
        " tensor, where the tpu device computes dense (strided) ones only. Run it on the CPU");
    return from_host(
        is_operand(result) ? result.clone() : std::move(result),
        static_cast<int8_t>(device_.index()));
  }

  const OpInfo& info_;
  torch::jit::Stack* stack_;
  HostRun run_;
  size_t start_;
  int64_t elements_ = 0; // of all operands
  c10::Device device_{c10::DeviceType::PrivateUse1, 0};
  c10::SmallVector<c10::IValue, 8> originals_;
  c10::SmallVector<c10::IValue, 2> hosts_; // of the written arguments, in order
  c10::SmallVector<std::pair<at::Tensor, at::Tensor>, 8> made_; // operands and their copies
  c10::SmallVector<const void*, 8> read_; // the memory of every operand
  c10::SmallVector<Owned, 2> owned_;
};

bool are_dense_floats(c10::ArrayRef<c10::IValue> arguments) {
  OperandSummary operands;
  for (const c10::IValue& argument : arguments) {
    for_tensors(argument, [&](const at::Tensor& tensor) { operands.see(tensor); });
  }
  return operands.dense_floats();
}

} // namespace

bool run_on_host(
    const c10::OperatorHandle& op,
    const OpInfo& info,
    torch::jit::Stack* stack,
    HostRun run,
    const std::string& why) {
  const bool uncompiled = run == HostRun::Uncompiled;
  if (uncompiled && info.steps && !are_dense_floats(torch::jit::last(*stack, info.kinds.size()))) {
    return false;
  }
  ReadReason reason(CutReason::HostFallback);
  HostCall call(info, stack, run);
  // First the kernel: where PyTorch refuses the call, its error is the user's, not a fallback.
  // It wrote to copies, so that a refusal of the fallback itself changes nothing either.
  try {
    if (!call.draw()) {
      const OneThread one_thread(uncompiled && call.is_small());
      const FlushSubnormals flush(call.is_small());
      call.seed();
      op.callBoxed(stack);
    }
  } catch (const c10::Error& error) {
    if (!uncompiled || !is_kernels_limit(error)) {
      throw;
    }
    call.give_up();
    return false;
  }
  if (!uncompiled) {
    GilGuard gil;
    call_engine("host_fallback", pack(make_string(info.name), make_string(why)));
  }
  call.finish();
  return true;
}

} // namespace fuse
