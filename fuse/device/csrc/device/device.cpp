// Allocator, device guard and hooks: what PyTorch asks of any accelerator.
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <c10/core/AutogradState.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <cstdlib>

#include "device/copier.h"
#include "device/device.h"
#include "device/generator.h"
#include "device/pinned.h"
#include "recorder/recorder.h"

namespace fuse {

namespace {

std::atomic<int> devices{1};
thread_local c10::DeviceIndex current = 0;

constexpr c10::DeviceType kDevice = c10::DeviceType::PrivateUse1;

// Allocates storages that only have a size; a value comes with the first write.
class DeviceAllocator final : public c10::DeviceAllocator { // torch.accelerator.memory's calls
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    check_process();
    check_room(nbytes, "an allocation");
    const auto size = static_cast<int64_t>(nbytes);
    uint32_t layout = LayoutTable::global().intern(c10::ScalarType::Byte, size);
    c10::Storage storage = make_storage(nbytes, layout, static_cast<int8_t>(current));
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
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex) override {
    constexpr auto kAll = static_cast<size_t>(c10::CachingAllocator::StatType::AGGREGATE);
    const MemoryStats now = memory_stats();
    c10::CachingDeviceAllocator::DeviceStats stats;
    for (c10::CachingAllocator::StatArray* bytes :
         {&stats.allocated_bytes, &stats.reserved_bytes}) {
      (*bytes)[kAll].current = now.allocated; // the backend keeps no pool that is seen here
      (*bytes)[kAll].peak = now.peak;
    }
    stats.allocation[kAll].current = now.storages;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex) override {} // nothing is accumulated
  void resetPeakStats(c10::DeviceIndex) override {
    reset_peak_memory();
  }
};

// Waits until everything handed on so far has run.
void await_engine() {
  GilGuard gil;
  call_engine("wait", pack());
}

bool is_idle() {
  if (!Copier::global().idle()) {
    return false;
  }
  GilGuard gil;
  return call_engine("idle", pack()).get() == Py_True;
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
    return {kDevice, current};
  }
  void setDevice(c10::Device device) const override {
    set_current_device(device.index());
  }
  void uncheckedSetDevice(c10::Device device) const noexcept override {
    if (device.index() >= 0) {
      current = device.index();
    }
  }
  // Autograd asks for it in the thread that starts a pass, before it chooses who runs it: this
  // thread, as on the CPU. Handing a pass to a thread of the device costs more than recording it,
  // and autograd has none where the process's first pass came before the device's start.
  c10::Stream getStream(c10::Device device) const override {
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
    return stream_of(device, Streams::global().here().id.load(std::memory_order_relaxed));
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
    return static_cast<c10::DeviceIndex>(devices.load());
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
  void synchronizeDevice(const c10::DeviceIndex) const override {
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
    const c10::DeviceIndex index = device.index() < 0 ? current : device.index();
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

class Hooks final : public at::PrivateUse1HooksInterface {
 public:
  bool isBuilt() const override {
    return true;
  }
  bool isAvailable() const override {
    return true;
  }
  bool hasPrimaryContext(c10::DeviceIndex) const override {
    return true;
  }
  c10::DeviceIndex deviceCount() const override {
    return static_cast<c10::DeviceIndex>(devices.load());
  }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    set_current_device(device);
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return current;
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    c10::DeviceIndex before = current;
    set_current_device(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device < 0 ? current : device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<PhiloxGenerator>(
        device < 0 ? current : device, c10::default_rng_seed_val);
  }
  at::Device getDeviceFromPtr(void* data) const override {
    return {kDevice, static_cast<Buffer*>(data)->device};
  }
  bool isPinnedPtr(const void* data) const override {
    return PinnedAllocator::global().owns(data);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return &PinnedAllocator::global();
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    resize_storage(*storage.unsafeGetStorageImpl(), nbytes);
  }
};

DeviceAllocator allocator;
REGISTER_ALLOCATOR(kDevice, &allocator)
C10_REGISTER_GUARD_IMPL(PrivateUse1, GuardImpl)

} // namespace

void register_hooks(int device_count) {
  devices.store(device_count);
  static bool registered = false;
  if (!registered) {
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    registered = true;
  }
}

c10::DeviceIndex own_index(c10::DeviceIndex device) {
  // One process a device, as launchers start them: a process calls its only one by its own number.
  static const int own = [] {
    const char* rank = std::getenv("LOCAL_RANK");
    return rank == nullptr ? -1 : std::atoi(rank);
  }();
  return devices.load() == 1 && device == own ? c10::DeviceIndex(0) : device;
}

void set_current_device(c10::DeviceIndex device) {
  device = own_index(device);
  TORCH_CHECK(
      device >= 0 && device < devices.load(),
      "invalid tpu device index ",
      static_cast<int>(device),
      ": there are ",
      devices.load(),
      " devices, numbered from 0");
  current = device;
}

c10::DeviceIndex current_device() {
  return current;
}

void synchronize() {
  Recorder::global().cut_all(CutReason::Synchronize);
  Copier::global().wait_for_all();
  await_engine();
}

double now_milliseconds() {
  using namespace std::chrono;
  return duration<double, std::milli>(steady_clock::now().time_since_epoch()).count();
}

} // namespace fuse
