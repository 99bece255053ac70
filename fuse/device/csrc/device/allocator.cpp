// The device's allocator, as PyTorch asks for storages and for statistics.
#include <c10/core/CachingDeviceAllocator.h>

#include "runtime/buffer.h"
#include "runtime/device_index.h"
#include "runtime/memory.h"
#include "runtime/process.h"
#include "tracing/recorder.h"

namespace fuse {

namespace {

// Allocates storages that only have a size; a value comes with the first write.
class DeviceAllocator final : public c10::DeviceAllocator { // torch.accelerator.memory's calls
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    check_process();
    check_room(nbytes, "an allocation");
    const auto size = static_cast<int64_t>(nbytes);
    uint32_t layout = LayoutTable::global().intern(c10::ScalarType::Byte, size);
    c10::Storage storage = make_storage(nbytes, layout, static_cast<int8_t>(current_device()));
    return storage.set_data_ptr(c10::DataPtr());
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return &delete_buffer;
  }
  void copy_data(void*, const void*, std::size_t) const override {
    TORCH_CHECK(false, "raw memory of the tpu device cannot be copied; copy tensors instead");
  }
  bool initialized() override {
    return true; // this core is loaded when the device starts
  }
  void emptyCache(c10::MempoolId_t) override {
    Recorder::global().cut_all(CutReason::Synchronize); // a recorded trace holds what it reads
  }
  void recordStream(const c10::DataPtr&, c10::Stream) override {} // values live while they are read
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    existing_index(device);
    // A storage is a segment of its own: the backend keeps no pool that is seen here.
    const MemoryStats now = memory_stats();
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (auto* bytes :
         {&stats.allocated_bytes,
          &stats.reserved_bytes,
          &stats.active_bytes,
          &stats.requested_bytes}) {
      give_sum(*bytes, now.bytes);
    }
    for (auto* storages : {&stats.allocation, &stats.segment, &stats.active}) {
      give_sum(*storages, now.storages);
    }
    stats.num_device_alloc = now.storages.allocated;
    stats.num_device_free = now.storages.freed;
    stats.num_ooms = now.refused;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    existing_index(device);
    reset_accumulated_memory();
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    existing_index(device);
    reset_peak_memory();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return memory_info(existing_index(device));
  }

 private:
  // There are no pools of small and large ones: all of them are in the sum.
  static void give_sum(c10::CachingAllocator::StatArray& stats, const MemoryCount& count) {
    give(stats[static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE)], count);
  }
};

DeviceAllocator allocator;
REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &allocator)

} // namespace

} // namespace fuse
