// The device's clock for torch.autograd.profiler without Kineto (`use_device="tpu"` alone).
#include <torch/csrc/profiler/stubs/base.h>

#include <chrono>
#include <functional>
#include <memory>

#include "device/synchronize.h"
#include "runtime/device_index.h"
#include "tracing/recorder.h"

namespace fuse {

namespace {

using torch::profiler::impl::ProfilerVoidEventStub;

int64_t nanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// That profiler times every call alone, from an event before it to one after it: each waits for
// what was recorded, so that calls are not fused while it runs.
class Stubs final : public torch::profiler::impl::ProfilerStubs {
 public:
  void record(
      c10::DeviceIndex* device, ProfilerVoidEventStub* event, int64_t* cpu_ns) const override {
    if (!Recorder::is_here()) { // else a call of the recorder's own: it runs nothing
      fuse::synchronize();
    }
    if (device != nullptr) {
      *device = current_device();
    }
    const int64_t now = nanoseconds();
    *event = std::make_shared<int64_t>(now);
    if (cpu_ns != nullptr) {
      *cpu_ns = now;
    }
  }
  // Microseconds.
  float elapsed(
      const ProfilerVoidEventStub* first, const ProfilerVoidEventStub* second) const override {
    constexpr float kPerMicrosecond = 1000.0F;
    return static_cast<float>(at(*second) - at(*first)) / kPerMicrosecond;
  }
  void mark(const char*) const override {}
  void rangePush(const char*) const override {}
  void rangePop() const override {}
  bool enabled() const override {
    return true;
  }
  void onEachDevice(std::function<void(int)> function) const override {
    function(current_device());
  }
  void synchronize() const override {
    fuse::synchronize();
  }

 private:
  static int64_t at(const ProfilerVoidEventStub& event) {
    return *static_cast<const int64_t*>(event.get());
  }
};

[[maybe_unused]] const bool registered = [] {
  static Stubs stubs;
  torch::profiler::impl::registerPrivateUse1Methods(&stubs);
  return true;
}();

} // namespace

} // namespace fuse
