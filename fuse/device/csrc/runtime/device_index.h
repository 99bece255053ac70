// Device indices: how many there are, which is current, and which one a program means.
#pragma once

#include <c10/core/Device.h>

namespace fuse {

void set_device_count(int count);
c10::DeviceIndex device_count();
// Makes `device` the calling thread's current one; throws for one that does not exist.
void set_current_device(int device);
// The same without a check.
void exchange_current_device(c10::DeviceIndex device);
// The index of the device that a program calls by this one.
c10::DeviceIndex own_index(c10::DeviceIndex device);
// The same; throws for a device that does not exist.
c10::DeviceIndex existing_index(int number);
c10::DeviceIndex current_device();
// The index of a device as a program names it, the current one's where it names none.
c10::DeviceIndex index_or_current(c10::Device device);
// Raises PyTorch's error for tensors of two devices.
[[noreturn]] void refuse_devices(c10::Device one, c10::Device other);

} // namespace fuse
