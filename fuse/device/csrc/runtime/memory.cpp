#include "runtime/memory.h"

#include <c10/core/Allocator.h>

#include <c10/util/Exception.h>

#include <atomic>

#include "runtime/device_index.h"
#include "runtime/memory_history.h"
#include "runtime/python_bridge.h"

namespace fuse {

namespace {

MemoryCounter live_bytes;
MemoryCounter live_storages;
std::atomic<int64_t> refused{0};
std::atomic<int64_t> held{0};
std::atomic<int64_t> largest_value{INT64_MAX};
std::atomic<int64_t> all_values{INT64_MAX};

} // namespace

MemoryStats memory_stats() {
  return {live_bytes.read(), live_storages.read(), refused.load()};
}

void reset_peak_memory() {
  live_bytes.reset_peak();
  live_storages.reset_peak();
}

void reset_accumulated_memory() {
  live_bytes.reset_totals();
  live_storages.reset_totals();
  refused.store(0);
}

void account(int64_t bytes, int64_t storages) {
  live_bytes.add(bytes);
  if (storages != 0) {
    live_storages.add(storages);
  }
}

void account_held(void* value, int64_t bytes) {
  const auto now = static_cast<size_t>(held.fetch_add(bytes, std::memory_order_relaxed) + bytes);
  if (bytes != 0) { // some 3 ns where nobody profiles
    c10::reportMemoryUsageToProfiler(
        value, bytes, now, now, c10::Device(c10::DeviceType::PrivateUse1, 0));
  }
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

std::pair<size_t, size_t> memory_info(int device) {
  GilGuard gil;
  const PyRef found = call_engine("memory_info", pack(make_int(device), make_int(held.load())));
  return {
      PyLong_AsSize_t(PyTuple_GetItem(found.get(), 0)),
      PyLong_AsSize_t(PyTuple_GetItem(found.get(), 1))};
}

void refuse_memory(size_t nbytes, const std::string& op) {
  refused.fetch_add(1);
  if (MemoryHistory::is_recorded()) {
    MemoryHistory::global().refused(nbytes, static_cast<int8_t>(current_device()));
  }
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
