#include "device/hooks.h"

#include <ATen/Context.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include "runtime/buffer.h"
#include "runtime/device_index.h"
#include "runtime/generator.h"
#include "runtime/pinned.h"
#include "tracing/recorder.h"

namespace fuse {

namespace {

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
    return device_count();
  }
  void setCurrentDevice(c10::DeviceIndex device) const override {
    set_current_device(device);
  }
  c10::DeviceIndex getCurrentDevice() const override {
    return current_device();
  }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex device) const override {
    c10::DeviceIndex before = current_device();
    set_current_device(device);
    return before;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex device) const override {
    return exchangeDevice(device);
  }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex device) const override {
    return default_generator(device < 0 ? current_device() : device);
  }
  at::Generator getNewGenerator(c10::DeviceIndex device) const override {
    return at::make_generator<PhiloxGenerator>(
        device < 0 ? current_device() : device, c10::default_rng_seed_val);
  }
  at::Device getDeviceFromPtr(void* data) const override {
    return {c10::DeviceType::PrivateUse1, static_cast<Buffer*>(data)->device};
  }
  bool isPinnedPtr(const void* data) const override {
    return PinnedAllocator::global().owns(data);
  }
  c10::Allocator* getPinnedMemoryAllocator() const override {
    return &PinnedAllocator::global();
  }
  void resizePrivateUse1Bytes(const c10::Storage& storage, size_t nbytes) const override {
    if (nbytes == 0) { // FSDP frees a gathered parameter so
      Recorder::global().discard(*Buffer::of(storage));
    }
    resize_storage(*storage.unsafeGetStorageImpl(), nbytes);
  }
};

} // namespace

void register_hooks(int count) {
  set_device_count(count);
  static bool registered = false;
  if (!registered) {
    at::setHostAllocator(c10::DeviceType::PrivateUse1, &PinnedAllocator::global());
    at::RegisterPrivateUse1HooksInterface(new Hooks);
    at::globalContext().lazyInitDevice(
        c10::DeviceType::PrivateUse1); // until then PyTorch takes nothing for pinned
    registered = true;
  }
}

} // namespace fuse
