// Memory accounting: what the device holds, and what it has room for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "runtime/memory_counter.h"

namespace fuse {

// What is behind live storages of the device.
struct MemoryStats {
  MemoryCount bytes;
  MemoryCount storages;
  int64_t refused = 0; // torch.OutOfMemoryErrors
};
MemoryStats memory_stats();
void reset_peak_memory();
void reset_accumulated_memory();
// A storage is made, gets another size, or is gone. 6 ns.
void account(int64_t bytes, int64_t storages);

// Bytes of values that have been computed, or are being: those behind storages may still be
// recorded only, and never exist if a chunk needs them for itself. `value` is whose they are, for a
// profiler that asks for memory.
void account_held(void* value, int64_t bytes);

// `largest` is what one value may have. All values together may have `all`; 0: the device says
// itself when it is full, which a host does not, whose memory the process shares with others.
void set_memory_bounds(int64_t largest, int64_t all);

// Bytes that may still be allocated, and all there are: of the device, or of the host where it
// computes in the host's memory.
std::pair<size_t, size_t> memory_info(int device);

// Whether a new value of so many bytes can exist. 1 ns.
bool has_room(size_t nbytes);
// Throws torch.OutOfMemoryError, which says how much was asked for, by which operator and line.
[[noreturn]] void refuse_memory(size_t nbytes, const std::string& op);
inline void check_room(size_t nbytes, const char* op) {
  if (!has_room(nbytes)) [[unlikely]] {
    refuse_memory(nbytes, op);
  }
}

} // namespace fuse
