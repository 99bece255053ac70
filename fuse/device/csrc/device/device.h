// The device as PyTorch's guards and hooks see it.
#pragma once

#include <c10/core/Device.h>

#include <chrono>

namespace fuse {

// Registers the hooks, once, and says how many devices there are.
void register_hooks(int device_count);
// Makes `device` the calling thread's current one; throws for one that does not exist.
void set_current_device(c10::DeviceIndex device);
// The index of the device that a program calls by this one.
c10::DeviceIndex own_index(c10::DeviceIndex device);
c10::DeviceIndex current_device();
// Hands on what is recorded and waits until the device has run everything.
void synchronize();
double now_milliseconds();

} // namespace fuse
