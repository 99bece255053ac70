#pragma once

#include <ATen/Parallel.h>

#if defined(__SSE2__)
#include <immintrin.h>
#endif

#include <cstdint>
#include <utility>
#include <vector>

extern "C" {
// How a compiler starts an OpenMP region; absent where PyTorch was built without OpenMP.
void GOMP_parallel(void (*function)(void*), void* data, unsigned threads, unsigned flags)
    __attribute__((weak));
int omp_get_thread_num() __attribute__((weak));
}

namespace fuse {

// Subnormal numbers count as zero in PyTorch's CPU kernels for as long as this lives, on the
// calling thread and, unless the call keeps to it (`alone`), on those of its OpenMP team. XLA's
// threads are so, and TPUs know no others: a call gives one answer wherever it runs. About 10 ns,
// for a team two regions of it.
class FlushSubnormals {
 public:
  explicit FlushSubnormals(bool alone) {
    const int threads = alone || GOMP_parallel == nullptr || omp_get_thread_num == nullptr ||
            at::in_parallel_region()
        ? 1
        : at::get_num_threads();
    if (threads == 1) {
      before_ = set(mode() | kFlush);
      return;
    }
    team_.resize(static_cast<size_t>(threads));
    on_team([](Mode& before) { before = set(mode() | kFlush); });
  }
  ~FlushSubnormals() {
    if (team_.empty()) {
      set(before_);
    } else {
      on_team([](Mode& before) { set(before); });
    }
  }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;

 private:
#if defined(__SSE2__)
  using Mode = uint32_t;
  static constexpr Mode kFlush = 0x8040; // flush to zero, and denormals are zero
  static Mode mode() {
    return _mm_getcsr();
  }
  static void store(Mode mode) {
    _mm_setcsr(mode);
  }
#elif defined(__aarch64__)
  using Mode = uint64_t;
  static constexpr Mode kFlush = uint64_t{1} << 24; // FPCR.FZ
  static Mode mode() {
    Mode found = 0;
    asm volatile("mrs %0, fpcr" : "=r"(found));
    return found;
  }
  static void store(Mode mode) {
    asm volatile("msr fpcr, %0" : : "r"(mode));
  }
#else
  using Mode = uint32_t;
  static constexpr Mode kFlush = 0;
  static Mode mode() {
    return 0;
  }
  static void store(Mode) {}
#endif

  // Returns what it was.
  static Mode set(Mode wanted) {
    const Mode before = mode();
    if (before != wanted) {
      store(wanted);
    }
    return before;
  }

  using Each = void (*)(Mode& before);
  void on_team(Each each) {
    std::pair<std::vector<Mode>&, Each> data{team_, each};
    GOMP_parallel(
        [](void* given) {
          auto& [team, function] = *static_cast<decltype(data)*>(given);
          function(team[static_cast<size_t>(omp_get_thread_num())]);
        },
        &data,
        static_cast<unsigned>(team_.size()),
        0);
  }

  Mode before_ = 0;
  std::vector<Mode> team_;
};

} // namespace fuse
