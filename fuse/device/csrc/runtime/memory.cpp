#include "runtime/memory.h"

#include <c10/util/Exception.h>

#include <atomic>

#include "runtime/python_bridge.h"

namespace fuse {

namespace {
std::atomic<int64_t> allocated{0};
std::atomic<int64_t> peak{0};
std::atomic<int64_t> live_storages{0};
std::atomic<int64_t> held{0};
std::atomic<int64_t> largest_value{INT64_MAX};
std::atomic<int64_t> all_values{INT64_MAX};
} // namespace

MemoryStats memory_stats() {
  return {allocated.load(), peak.load(), live_storages.load()};
}

void reset_peak_memory() {
  peak.store(allocated.load());
}

void account(int64_t bytes, int64_t storages) {
  int64_t now = allocated.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  live_storages.fetch_add(storages, std::memory_order_relaxed);
  int64_t seen = peak.load(std::memory_order_relaxed);
  while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
  }
}

void account_held(int64_t bytes) {
  held.fetch_add(bytes, std::memory_order_relaxed);
}

void set_memory_bounds(int64_t largest, int64_t all) {
  largest_value.store(largest);
  all_values.store(all == 0 ? INT64_MAX : all);
}

bool has_room(size_t nbytes) {
  const auto more = static_cast<int64_t>(nbytes);
  return more >= 0 && more <= largest_value.load(std::memory_order_relaxed) &&
      more <= all_values.load(std::memory_order_relaxed) - held.load(std::memory_order_relaxed);
}

void refuse_memory(size_t nbytes, const std::string& op) {
  std::string text;
  {
    GilGuard gil;
    PyRef said = call_engine(
        "no_memory",
        pack(
            make_int(static_cast<int64_t>(nbytes)),
            make_int(held.load()),
            make_int(largest_value.load()),
            make_string(op)));
    text = PyUnicode_AsUTF8(said.get());
  }
  TORCH_CHECK_WITH(OutOfMemoryError, false, text);
}

} // namespace fuse
