#include "runtime/device_index.h"

#include <c10/util/Exception.h>

#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>

namespace fuse {

namespace {

std::atomic<int> devices{1};
thread_local c10::DeviceIndex current = 0;

} // namespace

void set_device_count(int count) {
  devices.store(count);
}

c10::DeviceIndex device_count() {
  return static_cast<c10::DeviceIndex>(devices.load());
}

void exchange_current_device(c10::DeviceIndex device) {
  current = device;
}

c10::DeviceIndex own_index(c10::DeviceIndex device) {
  // One process a device, as launchers start them: a process calls its only one by its own number.
  static const int own = [] {
    const char* rank = std::getenv("LOCAL_RANK");
    int number = -1;
    if (rank != nullptr) {
      std::from_chars(rank, rank + std::strlen(rank), number);
    }
    return number;
  }();
  return devices.load() == 1 && device == own ? c10::DeviceIndex(0) : device;
}

c10::DeviceIndex existing_index(int number) {
  // An index is of 8 bits: cut to these, another number would be one of a device's.
  const bool fits = number == static_cast<c10::DeviceIndex>(number);
  const int device = fits ? own_index(static_cast<c10::DeviceIndex>(number)) : number;
  TORCH_CHECK(
      device >= 0 && device < devices.load(),
      "invalid tpu device index ",
      device,
      ": there are ",
      devices.load(),
      " devices, numbered from 0");
  return static_cast<c10::DeviceIndex>(device);
}

void set_current_device(int device) {
  current = existing_index(device);
}

c10::DeviceIndex current_device() {
  return current;
}

c10::DeviceIndex index_or_current(c10::Device device) {
  return device.has_index() ? own_index(device.index()) : current_device();
}

void refuse_devices(c10::Device one, c10::Device other) {
  TORCH_CHECK(
      false,
      "Expected all tensors to be on the same device, but found at least two devices, ",
      one,
      " and ",
      other,
      "!");
}

} // namespace fuse
