// Buffers: what one c10::Storage of the device stands for.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Storage.h>

#include <atomic>
#include <memory>
#include <string>

#include "runtime/array_handle.h"
#include "runtime/layout.h"

namespace fuse {

struct OpenTrace;

// An atomic flag with release and acquire order.
class Flag {
 public:
  Flag& operator=(bool value) {
    value_.store(value, std::memory_order_release);
    return *this;
  }
  operator bool() const { // NOLINT(google-explicit-constructor)
    return value_.load(std::memory_order_acquire);
  }

 private:
  std::atomic<bool> value_{false};
};

// Throws, in PyTorch's words, for a storage of some bytes without memory: a fake or functional
// tensor's.
void check_allocated(const c10::Storage& storage);

// The state behind one storage. Fields change only under the recorder's mutex, or
// while nobody else can see the buffer (at birth and at death).
struct Buffer {
  OpenTrace* stream = nullptr; // whose trace `trace` is
  uint64_t trace = 0; // serial of the trace in which `value` is meant
  int32_t value = -1; // value number in that trace
  int32_t leaf = -1; // its place among that trace's leaves, -1 for none
  uint32_t layout = 0; // of the current value
  Array array; // the concrete value; null while pending or uninitialised
  size_t nbytes = 0;
  int8_t device = 0;
  Flag pending; // the value is a result of a trace being recorded
  std::atomic<uint32_t> traces{0}; // and graphs that point here; while any does, death is deferred
  std::atomic<uint32_t> graphs{0}; // of these; changes under the mutex of the deferred frees
  bool orphaned = false; // its storage has died, and a graph points here: under that, too
  std::shared_ptr<std::string> poison; // why the value was lost, if it was

  // A trace points here, or does not any more. Under the recorder's mutex.
  void held() {
    traces.store(traces.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  void let_go() {
    traces.store(traces.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  }
  // Whether more traces than so many point here.
  bool is_in_more_than(uint32_t count) const {
    return traces.load(std::memory_order_relaxed) > count + graphs.load(std::memory_order_relaxed);
  }
  // The data pointer is the buffer's own address. Null for a storage without memory. Throws for
  // one of the device that somebody else made of an address: there is no buffer at it.
  static Buffer* of(const at::TensorBase& tensor) {
    return of(tensor.unsafeGetTensorImpl()->unsafe_storage());
  }
  static Buffer* of(const c10::Storage& storage) {
    Buffer* found = of(storage.data_ptr());
    if (found == nullptr) [[unlikely]] {
      check_allocated(storage);
    }
    return found;
  }
  static Buffer* of(const c10::DataPtr& data);
};

// Throws that this is no storage of the device's making, if it claims to be on the device.
void refuse_foreign(const c10::DataPtr& data);

// A new storage of `nbytes` bytes with its own buffer, whose value has layout `layout`.
c10::Storage make_storage(size_t nbytes, uint32_t layout, int8_t device);
// The deleter of every device DataPtr.
void delete_buffer(void* context);

inline Buffer* Buffer::of(const c10::DataPtr& data) {
  if (data.get_deleter() != &delete_buffer) [[unlikely]] {
    refuse_foreign(data);
  }
  return static_cast<Buffer*>(data.get());
}

// The layout of a storage of `nbytes` bytes after a write to a part of it: the one it had, but
// flat, in the writer's dtype, once the storage has grown past its value.
uint32_t layout_of_part(const Buffer& buffer, c10::ScalarType writer, size_t nbytes);
// The layout that a buffer has after a write through `tensor`: the tensor's own where it
// covers the whole storage, else the one it had.
uint32_t layout_after_write(const at::TensorBase& tensor, const Buffer& buffer);
// Gives `tensor` these sizes, row-major at offset 0, growing its storage where too small.
void resize_contiguous(const at::TensorBase& tensor, c10::IntArrayRef sizes);
// Sets the byte size of a storage of the device; bytes kept are those of the shorter.
void resize_storage(c10::StorageImpl& storage, size_t nbytes);

} // namespace fuse
