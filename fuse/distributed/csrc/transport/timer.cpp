// What DistributedDataParallel measures of a step. Its own timers know the CPU and CUDA.
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

namespace fuse::distributed {

namespace {

// Final. The host's clock: when a call was recorded, which is not when it is computed.
class HostTimer final : public c10d::Timer {
 public:
  explicit HostTimer(c10::Device /* device */) {}

  std::optional<int64_t> measureDifference(Event start, Event end) override {
    const int64_t from = getTimeRef(start);
    const int64_t to = getTimeRef(end);
    if (from == c10d::kUnsetTime || to == c10d::kUnsetTime || to < from) {
      return std::nullopt;
    }
    return to - from;
  }
};

} // namespace

} // namespace fuse::distributed

namespace c10d {
C10_REGISTER_TYPED_CLASS(TimerRegistry, c10::kPrivateUse1, fuse::distributed::HostTimer);
} // namespace c10d
