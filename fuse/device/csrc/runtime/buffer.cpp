#include "runtime/buffer.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/Allocator.h>

#include "runtime/deferred_frees.h"
#include "runtime/memory.h"
#include "runtime/memory_history.h"
#include "runtime/process.h"

namespace fuse {

void delete_buffer(void* context) {
  if (process_state.load(std::memory_order_relaxed) == Process::Forked) {
    return; // it lives on in the parent, as do locks that this copy may have inherited locked
  }
  auto* buffer = static_cast<Buffer*>(context);
  account(-static_cast<int64_t>(buffer->nbytes), -1);
  if (MemoryHistory::is_recorded()) [[unlikely]] {
    MemoryHistory::global().freed(buffer, buffer->nbytes, buffer->device);
  }
  DeferredFrees::global().add(buffer);
}

c10::Storage make_storage(size_t nbytes, uint32_t layout, int8_t device) {
  auto* buffer = new Buffer;
  buffer->nbytes = nbytes;
  buffer->layout = layout;
  buffer->device = device;
  account(static_cast<int64_t>(nbytes), 1);
  if (MemoryHistory::is_recorded()) [[unlikely]] {
    MemoryHistory::global().allocated(buffer, nbytes, device);
  }
  // The buffer's own address serves as data pointer: distinct for every storage, never read.
  c10::DataPtr data(
      buffer, buffer, &delete_buffer, c10::Device(c10::DeviceType::PrivateUse1, device));
  return c10::Storage(
      c10::make_intrusive<c10::StorageImpl>(
          c10::StorageImpl::use_byte_size_t(),
          static_cast<int64_t>(nbytes),
          std::move(data),
          c10::GetAllocator(c10::DeviceType::PrivateUse1),
          /*resizable=*/true));
}

void check_allocated(const c10::Storage& storage) {
  TORCH_CHECK(
      storage.nbytes() == 0 || storage.data_ptr().get() != nullptr,
      "The tensor has a non-zero number of elements, but its data is not allocated yet: it is a "
      "fake or a functional one, whose values a kernel of the tpu device cannot have");
}

void refuse_foreign(const c10::DataPtr& data) {
  TORCH_CHECK(
      data.get() == nullptr || data.device().type() != c10::DeviceType::PrivateUse1,
      "this storage on the tpu device was made of an address, where the device has no memory of "
      "its own. Make tensors instead: views of a tensor share its storage");
}

void resize_storage(c10::StorageImpl& storage, size_t nbytes) {
  Buffer* buffer = Buffer::of(storage.data_ptr());
  check_room(nbytes, "aten::resize_");
  account(static_cast<int64_t>(nbytes) - static_cast<int64_t>(buffer->nbytes), 0);
  if (MemoryHistory::is_recorded()) [[unlikely]] {
    MemoryHistory::global().resized(buffer, buffer->nbytes, nbytes, buffer->device);
  }
  buffer->nbytes = nbytes;
  storage.set_nbytes(nbytes);
}

void resize_contiguous(const at::TensorBase& tensor, c10::IntArrayRef sizes) {
  auto* impl = tensor.unsafeGetTensorImpl();
  const size_t needed = at::detail::computeStorageNbytesContiguous( // throws where that overflows
      sizes,
      impl->dtype().itemsize(),
      static_cast<size_t>(impl->storage_offset()));
  if (needed > impl->unsafe_storage().nbytes()) {
    resize_storage(*impl->unsafe_storage().unsafeGetStorageImpl(), needed);
  }
  impl->set_sizes_contiguous(sizes);
}

uint32_t layout_of_part(const Buffer& buffer, c10::ScalarType writer, size_t nbytes) {
  if (bytes_in(buffer.layout) >= nbytes) {
    return buffer.layout;
  }
  const auto elements = static_cast<int64_t>(nbytes / c10::elementSize(writer));
  return LayoutTable::global().intern(writer, elements);
}

uint32_t layout_after_write(const at::TensorBase& tensor, const Buffer& buffer) {
  c10::SmallVector<int64_t, 6> shape;
  const bool whole = tensor.storage_offset() == 0 &&
      static_cast<size_t>(tensor.numel()) * tensor.element_size() == buffer.nbytes;
  if (whole && physical_shape(tensor.sizes(), tensor.strides(), shape)) {
    return LayoutTable::global().intern(tensor.scalar_type(), shape);
  }
  return layout_of_part(buffer, tensor.scalar_type(), buffer.nbytes);
}

} // namespace fuse
