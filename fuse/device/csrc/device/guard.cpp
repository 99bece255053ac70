// The device guard: current device, streams and events, as PyTorch sees them.
#include <c10/core/AutogradState.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <array>
#include <chrono>

#include "device/synchronize.h"
#include "runtime/copier.h"
#include "runtime/device_index.h"
#include "tracing/recorder.h"

namespace fuse {

namespace {

constexpr c10::DeviceType kDevice = c10::DeviceType::PrivateUse1;
// What tensors of the device may be of: ``ITEMSIZE`` in fuse/trace/spec.py.
constexpr std::array kDtypes{
    c10::kBool,
    c10::kByte,
    c10::kChar,
    c10::kShort,
    c10::kUInt16,
    c10::kInt,
    c10::kUInt32,
    c10::kLong,
    c10::kUInt64,
    c10::kHalf,
    c10::kBFloat16,
    c10::kFloat,
    c10::kDouble,
    c10::kComplexHalf,
    c10::kComplexFloat,
    c10::kComplexDouble,
    c10::kFloat8_e4m3fn,
    c10::kFloat8_e5m2,
    c10::kFloat8_e4m3fnuz,
    c10::kFloat8_e5m2fnuz,
    c10::kFloat8_e8m0fnu};

double now_milliseconds() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

// Every thread begins on a stream of its own: see Streams. What one stream makes and another reads
// is ordered by itself, so that to block only passes on which copies a wait is for. An event is
// complete once what its stream had recorded has run. Recording one hands nothing on and waits for
// nothing: it remembers how far the stream had come.
class GuardImpl final : public c10::impl::DeviceGuardImplInterface {
 public:
  c10::DeviceType type() const override {
    return kDevice;
  }
  c10::Device exchangeDevice(c10::Device device) const override {
    c10::Device before = getDevice();
    setDevice(device);
    return before;
  }
  c10::Device getDevice() const override {
    return {kDevice, current_device()};
  }
  void setDevice(c10::Device device) const override {
    set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) {
      exchange_current_device(device.index());
    }
  }
  // Autograd asks for it in the thread that starts a pass, before it chooses who runs it: this
  // thread, as on the CPU. Handing a pass to a thread of the device costs more than recording it,
  // and autograd has none where the process's first pass came before the device's start.
  c10::Stream getStream(c10::Device device) const override {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    return stream_of(device, Streams::global().here().number());
  }
  c10::Stream getDefaultStream(c10::Device device) const override {
    return c10::Stream(c10::Stream::DEFAULT, device);
  }
  c10::Stream getNewStream(c10::Device device, int) const override {
    return stream_of(device, Streams::global().next_of_pool());
  }
  c10::Stream getStreamFromGlobalPool(c10::Device device, bool) const override {
    return getNewStream(device, 0);
  }
  // Autograd makes the stream of a call's forward current for its backward, on whichever thread.
  c10::Stream exchangeStream(c10::Stream stream) const override {
    return stream_of(stream.device(), Streams::global().exchange(stream.id()));
  }
  c10::DeviceIndex deviceCount() const noexcept override {
    return device_count();
  }
  bool queryStream(const c10::Stream& stream) const override {
    hand_on(position(stream));
    return is_idle();
  }
  void synchronizeStream(const c10::Stream& stream) const override {
    hand_on(position(stream));
    Copier::global().wait_for_stream(stream.id());
    await_engine();
  }
  void synchronizeDevice(const c10::DeviceIndex device) const override {
    existing_index(device);
    synchronize();
  }
  void record(
      void** event,
      const c10::Stream& stream,
      const c10::DeviceIndex,
      const c10::EventFlag flag) const override {
    if (*event == nullptr) {
      *event = new EventPoint;
    }
    auto& point = *static_cast<EventPoint*>(*event);
    if (flag == c10::EventFlag::BACKEND_DEFAULT) { // it times: what came before has to have run
      synchronizeStream(stream);
      point.milliseconds = now_milliseconds();
    }
    point.at = position(stream);
    point.copy = Copier::global().last_of(stream.id());
  }
  void block(void* event, const c10::Stream& stream) const override {
    if (event != nullptr) {
      Copier::global().follow(stream.id(), static_cast<EventPoint*>(event)->copy);
    }
  }
  bool queryEvent(void* event) const override {
    if (event == nullptr) {
      return true;
    }
    hand_on(static_cast<EventPoint*>(event)->at);
    return is_idle();
  }
  void synchronizeEvent(void* event) const override {
    if (event != nullptr) {
      const EventPoint& point = *static_cast<EventPoint*>(event);
      hand_on(point.at);
      Copier::global().wait(point.copy);
      await_engine();
    }
  }
  void destroyEvent(void* event, const c10::DeviceIndex) const noexcept override {
    delete static_cast<EventPoint*>(event);
  }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability found;
    found.capability_data.capability_bits = 0;
    for (const auto dtype : kDtypes) {
      found.capability_data.capability_bits |= 1ULL << static_cast<unsigned>(dtype);
    }
    return found;
  }
  double elapsedTime(void* first, void* second, const c10::DeviceIndex) const override {
    TORCH_CHECK(
        first != nullptr && second != nullptr, "both events must be recorded before elapsed_time");
    return static_cast<EventPoint*>(second)->milliseconds -
        static_cast<EventPoint*>(first)->milliseconds;
  }

 private:
  // Where on its stream an event was recorded.
  struct EventPoint {
    Position at;
    Copier::Ticket copy = 0;
    double milliseconds = 0;
  };

  static c10::Stream stream_of(c10::Device device, int64_t id) {
    const c10::DeviceIndex index = device.index() < 0 ? current_device() : device.index();
    return c10::Stream(c10::Stream::UNSAFE, c10::Device(kDevice, index), id);
  }
  static Position position(const c10::Stream& stream) {
    return Recorder::global().position(Streams::global().find(stream.id()));
  }
  // Hands on what had been recorded there.
  static void hand_on(const Position& position) {
    Recorder::global().cut_at(position, CutReason::Synchronize);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, GuardImpl)

} // namespace

} // namespace fuse
