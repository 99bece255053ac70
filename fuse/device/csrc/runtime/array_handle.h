// Array handles: the value of a buffer, as an array of the backend, host memory, or both.
#pragma once

#include <ATen/core/Tensor.h>
#include <Python.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <memory>
#include <string>
#include <utility>

#include "runtime/memory.h"
#include "runtime/promise.h"

namespace fuse {

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
      account_held(this, static_cast<int64_t>(nbytes));
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

} // namespace fuse
