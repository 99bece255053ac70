#pragma once

#include <ATen/Parallel.h>

extern "C" {
// OpenMP's own, from whichever library PyTorch brought; absent where PyTorch was built without.
void omp_set_num_threads(int) __attribute__((weak));
}

namespace fuse {

// PyTorch's CPU kernels on the calling thread alone, if `alone`. About 20 ns.
class OneThread {
 public:
  explicit OneThread(bool alone) : threads_(alone ? at::get_num_threads() : 1) {
    if (threads_ > 1) {
      set(1);
    }
  }
  ~OneThread() {
    if (threads_ > 1) {
      set(threads_);
    }
  }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  static void set(int threads) {
    if (omp_set_num_threads != nullptr) {
      omp_set_num_threads(threads);
    }
  }

  int threads_;
};

} // namespace fuse
