#pragma once

#include <ATen/Parallel.h>

extern "C" {
// OpenMP's own, from whichever library PyTorch brought; absent where PyTorch was built without.
void omp_set_num_threads(int) __attribute__((weak));
// MKL's for the calling thread, which it obeys rather than OpenMP's: returns what it was, 0 for
// none. After `torch.set_num_threads` every thread that asks PyTorch for the number has one.
int MKL_Set_Num_Threads_Local(int) __attribute__((weak));
}

namespace fuse {

// Up to how many elements of its operands a call is on one thread: some 10 us of a product.
constexpr int64_t kSmallCall = 1 << 16;

// PyTorch's CPU kernels on the calling thread alone, if `alone`. About 20 ns.
class OneThread {
 public:
  explicit OneThread(bool alone) : threads_(alone ? at::get_num_threads() : 1) {
    if (threads_ > 1) {
      set(1);
      products_ = set_products(1);
    }
  }
  ~OneThread() {
    if (threads_ > 1) {
      set_products(products_);
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

  static int set_products(int threads) {
    return MKL_Set_Num_Threads_Local != nullptr ? MKL_Set_Num_Threads_Local(threads) : 0;
  }

  int threads_;
  int products_ = 0;
};

} // namespace fuse
