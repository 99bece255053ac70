// The core's table of functions for other libraries: see device_values.h.
#include "device/exchange.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include "cpu_exec/host_values.h"
#include "runtime/buffer.h"
#include "runtime/host_memory.h"
#include "runtime/transfer.h"
#include "tracing/recorder.h"

namespace fuse {

namespace {

// Whether a tensor is its whole storage, and row-major: then memory has its elements in its order.
bool is_whole(const at::Tensor& tensor) {
  return tensor.is_contiguous() && covers_storage(tensor);
}

// A tensor's value and geometry at one moment.
class Taken final : public c10::intrusive_ptr_target {
 public:
  explicit Taken(const at::Tensor& tensor)
      : held_(Recorder::global().materialise(Buffer::of(tensor), CutReason::Collective)),
        dtype_(tensor.scalar_type()),
        nbytes_(tensor.storage().nbytes()),
        elements_(tensor.numel()),
        offset_(tensor.storage_offset()),
        whole_(is_whole(tensor)) {
    if (held_.defined()) {
      host_ = held_->host(); // now: another thread may set it later
      const Layout& layout = LayoutTable::global().get(Buffer::of(tensor)->layout);
      is_array_ = whole_ && layout.dtype == dtype_;
    }
    sizes_.assign(tensor.sizes().begin(), tensor.sizes().end());
    strides_.assign(tensor.strides().begin(), tensor.strides().end());
  }

  at::Tensor read() const {
    const auto itemsize = static_cast<int64_t>(c10::elementSize(dtype_));
    const at::Tensor memory = bytes();
    const at::Tensor flat = memory.narrow(0, 0, memory.numel() / itemsize * itemsize).view(dtype_);
    if (whole_) {
      return flat.narrow(0, 0, elements_);
    }
    return flat.as_strided(sizes_, strides_, flat.storage_offset() + offset_)
        .contiguous()
        .view({elements_});
  }

  PyObject* array() const {
    PyObject* found = is_array_ ? held_->get() : nullptr;
    Py_XINCREF(found);
    return found;
  }

 private:
  // All of the storage's.
  at::Tensor bytes() const {
    if (!held_.defined()) {
      return at::zeros({static_cast<int64_t>(nbytes_)}, at::TensorOptions().dtype(at::kByte));
    }
    const at::Tensor found = bytes_of(host_.defined() ? host_ : fetch(held_->get()));
    return static_cast<size_t>(found.numel()) < nbytes_ ? padded(found, nbytes_) : found;
  }

  Array held_;
  at::Tensor host_;
  c10::ScalarType dtype_;
  size_t nbytes_;
  int64_t elements_;
  int64_t offset_;
  bool whole_;
  bool is_array_ = false; // a backend's has the same elements
  c10::SmallVector<int64_t, 6> sizes_;
  c10::SmallVector<int64_t, 6> strides_;
};

Opaque take(const at::Tensor& tensor) {
  check_process();
  Recorder::global().begin_read();
  return c10::make_intrusive<Taken>(tensor);
}

at::Tensor read(const Opaque& taken) {
  return static_cast<const Taken&>(*taken).read();
}

PyObject* array(const Opaque& taken) {
  return static_cast<const Taken&>(*taken).array();
}

Opaque promise(const at::Tensor& tensor, at::Tensor& whole) {
  check_process();
  auto promised = c10::make_intrusive<ArrayHandle>(std::make_shared<Promise>());
  if (is_whole(tensor)) {
    Buffer* buffer = Buffer::of(tensor);
    Recorder::global().assign(buffer, promised, layout_after_write(tensor, *buffer));
    return promised;
  }
  whole = at::empty(tensor.sizes(), tensor.options().memory_format(at::MemoryFormat::Contiguous));
  Buffer* buffer = Buffer::of(whole);
  Recorder::global().assign(buffer, promised, buffer->layout);
  return promised;
}

void place(const at::Tensor& tensor, const at::Tensor& whole) {
  const RecordOnly recorded; // a copy that ran uncompiled would wait for the value here
  at::Tensor(tensor).copy_(whole);
}

void fulfil(const Opaque& promised, at::Tensor host) {
  static_cast<ArrayHandle&>(*promised).fulfil(std::move(host));
}

void fulfil_array(const Opaque& promised, PyObject* array) {
  Py_INCREF(array);
  static_cast<ArrayHandle&>(*promised).fulfil(array);
}

void fail(const Opaque& promised, const std::string& why) {
  static_cast<ArrayHandle&>(*promised).fail(why);
}

const DeviceValues table{take, read, array, promise, place, fulfil, fulfil_array, fail};

} // namespace

const DeviceValues& device_values() {
  return table;
}

} // namespace fuse
