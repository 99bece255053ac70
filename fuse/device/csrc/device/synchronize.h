// Synchronisation: waiting for the device.
#pragma once

namespace fuse {

// Waits until everything handed on so far has run.
void await_engine();
// Whether nothing that has been handed on is still to run. Waits for nothing.
bool is_idle();
// Hands on what is recorded and waits until the device has run everything.
void synchronize();

} // namespace fuse
