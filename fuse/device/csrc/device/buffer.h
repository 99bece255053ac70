// What one c10::Storage of the device stands for.
#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>
#include <c10/core/ScalarType.h>
#include <c10/core/Storage.h>
#include <c10/util/SmallVector.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "device/memory.h"
#include "device/promise.h"

namespace fuse {

struct OpenTrace;

// One value: a backend array, host memory, or both. Dropping the last handle needs no GIL:
// the Python reference is queued and released by the next thread that holds it.
class ArrayHandle final : public c10::intrusive_ptr_target {
 public:
  // Steals the reference to a backend array.
  explicit ArrayHandle(PyObject* array) : array_(array) {}
  // A value that a host kernel made: a CPU tensor over all its bytes, dense in memory.
  explicit ArrayHandle(at::Tensor host) : host_(std::move(host)) {}
  // A value that another thread is making: whoever asks for it waits until it is there. Where its
  // host memory is known already, keeping the promise is all that is left to do.
  explicit ArrayHandle(std::shared_ptr<Promise> promise)
      : promised_(true), promise_(std::move(promise)) {}
  ArrayHandle(at::Tensor host, std::shared_ptr<Promise> promise)
      : host_(std::move(host)), promised_(true), promise_(std::move(promise)) {}
  ~ArrayHandle() override;

  // Returns once there is a value; throws why there will be none.
  void settle() const {
    if (promised_.load(std::memory_order_acquire)) [[unlikely]] {
      promise_->wait();
      promised_.store(false, std::memory_order_release);
    }
  }
  // Whether to settle needs no waiting.
  bool settled() const {
    return !promised_.load(std::memory_order_acquire) || promise_->settled();
  }
  // The promised value, from the thread that made it: host memory, or an array, which is stolen.
  void fulfil(at::Tensor host) {
    host_ = std::move(host);
    keep_promise();
  }
  void fulfil(PyObject* array) {
    array_ = array;
    keep_promise();
  }
  void fail(const std::string& why) {
    promise_->settle(why);
  }

  // The backend array, null while the value is in host memory only.
  PyObject* get() const {
    settle();
    return array_;
  }
  // Takes a backend array of the same value: converted from the host, or to another backend.
  void replace(PyObject* array) { // GIL held
    Py_INCREF(array);
    Py_XDECREF(std::exchange(array_, array));
  }
  // The value in host memory, of whichever dtype and shape it was made; undefined until set.
  // Shares memory with the backend array where the platform is the CPU, and keeps that array
  // from being donated.
  const at::Tensor& host() const {
    settle();
    return host_;
  }
  void set_host(at::Tensor host) {
    host_ = std::move(host);
  }
  // Whether a host kernel may write in place: nobody but one buffer can see the bytes.
  bool writable_host() const {
    return !promised_.load(std::memory_order_acquire) && array_ == nullptr && host_.defined();
  }
  // Whether the program holds the backend array, too: then its memory is never another value's.
  bool shared() const {
    return shared_;
  }
  void share() {
    shared_ = true;
  }
  // How many bytes the value has, once; they are the device's until it dies.
  void has(size_t nbytes) {
    if (nbytes_ == 0) {
      nbytes_ = nbytes;
      account_held(static_cast<int64_t>(nbytes));
    }
  }
  // Whether a trace that has ended read the value.
  bool read() const {
    return read_;
  }
  void set_read() {
    read_ = true;
  }

 private:
  void keep_promise() {
    promised_.store(false, std::memory_order_release);
    promise_->settle();
  }

  PyObject* array_ = nullptr;
  size_t nbytes_ = 0;
  at::Tensor host_;
  bool read_ = false;
  bool shared_ = false;
  mutable std::atomic<bool> promised_{false}; // and not known to be kept
  std::shared_ptr<Promise> promise_;
};

using Array = c10::intrusive_ptr<ArrayHandle>;

// The dense row-major array that a buffer holds; interned, so that a key stores one number.
struct Layout {
  c10::ScalarType dtype = c10::ScalarType::Byte;
  c10::SmallVector<int64_t, 6> shape;
};

// Process-wide table of layouts. Thread-safe; a reference stays valid for ever.
class LayoutTable {
 public:
  static LayoutTable& global();
  uint32_t intern(c10::ScalarType dtype, c10::IntArrayRef shape);
  const Layout& get(uint32_t id);

 private:
  uint32_t intern_anew(c10::ScalarType dtype, c10::IntArrayRef shape, size_t hash);
  std::mutex mutex_;
  std::vector<std::unique_ptr<Layout>> layouts_;
  std::unordered_multimap<size_t, uint32_t> index_;
};

// What one thread says with it, whoever sees it sees what was written before.
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
  std::atomic<uint32_t> traces{0}; // that point here: death goes through the morgue
  std::shared_ptr<std::string> poison; // why the value was lost, if it was

  // A trace points here, or does not any more. Under the recorder's mutex.
  void held() {
    traces.store(traces.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }
  void let_go() {
    traces.store(traces.load(std::memory_order_relaxed) - 1, std::memory_order_release);
  }
  // The data pointer is the buffer's own address. Null for a storage that is not the device's.
  static Buffer* of(const at::TensorBase& tensor) {
    return static_cast<Buffer*>(tensor.unsafeGetTensorImpl()->unsafe_storage().data_ptr().get());
  }
  static Buffer* of(const c10::Storage& storage) {
    return static_cast<Buffer*>(storage.data_ptr().get());
  }
};

// A new storage of `nbytes` bytes with its own buffer, whose value has layout `layout`.
c10::Storage make_storage(size_t nbytes, uint32_t layout, int8_t device);
// The deleter of every device DataPtr.
void delete_buffer(void* context);
// Where buffers go that die while a trace points at them; emptied under the recorder's mutex.
class Morgue {
 public:
  static Morgue& global();
  void add(Buffer* buffer);
  std::vector<Buffer*> take();
  std::mutex& mutex() {
    return mutex_;
  }

 private:
  std::mutex mutex_;
  std::vector<Buffer*> dead_;
};

// The bytes of a value of this layout.
size_t bytes_in(uint32_t layout);
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

// Whether `tensor` sees all bytes of its storage, each once.
bool covers_storage(const at::TensorBase& tensor);

// Sizes in memory order (descending strides) if the view is dense and does not overlap.
bool physical_shape(
    c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::SmallVectorImpl<int64_t>& shape);

} // namespace fuse
