#include "device/buffer.h"

#include <c10/core/Allocator.h>
#include <c10/util/hash.h>

#include <algorithm>
#include <array>
#include <atomic>

#include "device/python_bridge.h"

namespace fuse {

ArrayHandle::~ArrayHandle() {
  if (array_ != nullptr) {
    release_later(array_);
  }
  account_held(-static_cast<int64_t>(nbytes_));
}

LayoutTable& LayoutTable::global() {
  static auto* table = new LayoutTable; // outlives every tensor, also at process exit
  return *table;
}

uint32_t LayoutTable::intern(c10::ScalarType dtype, c10::IntArrayRef shape) {
  size_t hash = c10::get_hash(static_cast<int>(dtype), shape.size());
  for (int64_t size : shape) {
    hash = c10::hash_combine(hash, static_cast<size_t>(size));
  }
  // What this thread asked for lately: 10 ns instead of 50.
  struct Lately {
    const Layout* layout = nullptr;
    uint32_t id = 0;
  };
  static thread_local std::array<Lately, 64> lately;
  Lately& found = lately[hash % lately.size()];
  if (found.layout == nullptr || found.layout->dtype != dtype ||
      c10::IntArrayRef(found.layout->shape) != shape) {
    found.id = intern_anew(dtype, shape, hash);
    found.layout = &get(found.id);
  }
  return found.id;
}

uint32_t LayoutTable::intern_anew(c10::ScalarType dtype, c10::IntArrayRef shape, size_t hash) {
  std::lock_guard<std::mutex> guard(mutex_);
  auto range = index_.equal_range(hash);
  for (auto it = range.first; it != range.second; ++it) {
    const Layout& layout = *layouts_[it->second];
    if (layout.dtype == dtype && c10::IntArrayRef(layout.shape) == shape) {
      return it->second;
    }
  }
  auto layout = std::make_unique<Layout>();
  layout->dtype = dtype;
  layout->shape.assign(shape.begin(), shape.end());
  layouts_.push_back(std::move(layout));
  auto id = static_cast<uint32_t>(layouts_.size() - 1);
  index_.emplace(hash, id);
  return id;
}

const Layout& LayoutTable::get(uint32_t id) {
  std::lock_guard<std::mutex> guard(mutex_);
  return *layouts_[id];
}

Morgue& Morgue::global() {
  static auto* morgue = new Morgue;
  return *morgue;
}

void Morgue::add(Buffer* buffer) {
  // A trace points at live buffers only, so one that none pointed at stays so: no lock for it.
  if (buffer->traces.load(std::memory_order_acquire) != 0) {
    std::lock_guard<std::mutex> guard(mutex_);
    if (buffer->traces.load(std::memory_order_relaxed) != 0) {
      dead_.push_back(buffer);
      return;
    }
  }
  delete buffer;
}

std::vector<Buffer*> Morgue::take() {
  std::vector<Buffer*> dead;
  std::lock_guard<std::mutex> guard(mutex_);
  dead.swap(dead_);
  return dead;
}

void delete_buffer(void* context) {
  if (process_state.load(std::memory_order_relaxed) == Process::Forked) {
    return; // it lives on in the parent, as do locks that this copy may have inherited locked
  }
  auto* buffer = static_cast<Buffer*>(context);
  account(-static_cast<int64_t>(buffer->nbytes), -1);
  Morgue::global().add(buffer);
}

c10::Storage make_storage(size_t nbytes, uint32_t layout, int8_t device) {
  auto* buffer = new Buffer;
  buffer->nbytes = nbytes;
  buffer->layout = layout;
  buffer->device = device;
  account(static_cast<int64_t>(nbytes), 1);
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

void resize_storage(c10::StorageImpl& storage, size_t nbytes) {
  auto* buffer = static_cast<Buffer*>(storage.data_ptr().get_context());
  check_room(nbytes, "aten::resize_");
  account(static_cast<int64_t>(nbytes) - static_cast<int64_t>(buffer->nbytes), 0);
  buffer->nbytes = nbytes;
  storage.set_nbytes(nbytes);
}

void resize_contiguous(const at::TensorBase& tensor, c10::IntArrayRef sizes) {
  auto* impl = tensor.unsafeGetTensorImpl();
  impl->set_sizes_contiguous(sizes);
  const size_t needed =
      (static_cast<size_t>(impl->storage_offset()) + static_cast<size_t>(impl->numel())) *
      impl->dtype().itemsize();
  if (needed > impl->unsafe_storage().nbytes()) {
    resize_storage(*impl->unsafe_storage().unsafeGetStorageImpl(), needed);
  }
}

size_t bytes_in(uint32_t layout) {
  const Layout& known = LayoutTable::global().get(layout);
  return static_cast<size_t>(c10::multiply_integers(known.shape)) * c10::elementSize(known.dtype);
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

bool covers_storage(const at::TensorBase& tensor) {
  c10::SmallVector<int64_t, 6> shape;
  return tensor.storage_offset() == 0 &&
      static_cast<size_t>(tensor.numel()) * tensor.element_size() == tensor.storage().nbytes() &&
      physical_shape(tensor.sizes(), tensor.strides(), shape);
}

namespace {

// Whether the strides are PyTorch's for these sizes, those of dimensions of one element, too.
bool is_row_major(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  int64_t expected = 1;
  for (size_t dim = sizes.size(); dim-- > 0;) {
    if (strides[dim] != expected) {
      return false;
    }
    expected *= std::max<int64_t>(sizes[dim], 1);
  }
  return true;
}

} // namespace

bool physical_shape(
    c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::SmallVectorImpl<int64_t>& shape) {
  shape.clear();
  if (is_row_major(sizes, strides)) {
    shape.append(sizes.begin(), sizes.end());
    return true;
  }
  c10::SmallVector<size_t, 6> order;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    order.push_back(dim);
  }
  // Size-1 dimensions first: their strides say nothing.
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return (sizes[a] == 1 ? INT64_MAX : strides[a]) > (sizes[b] == 1 ? INT64_MAX : strides[b]);
  });
  for (size_t dim : order) {
    shape.push_back(sizes[dim]);
  }
  int64_t expected = 1;
  for (size_t k = order.size(); k-- > 0;) {
    int64_t size = sizes[order[k]];
    if (size == 0) {
      return true;
    }
    if (size != 1 && strides[order[k]] != expected) {
      return false;
    }
    expected *= size;
  }
  return true;
}

} // namespace fuse
