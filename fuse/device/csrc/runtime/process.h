// Process state: whether the device may be used still, not after a fork, nor in the end.
#pragma once

#include <Python.h>

#include <atomic>

namespace fuse {

enum class Process : uint8_t { Running, Forked, Closing, Ending };
extern std::atomic<Process> process_state;

// Throws FuseError in a forked child, and once Python takes the interpreter down. A thread other
// than the one that ends the process stops here for good, without the GIL.
void refuse_if_over();
// Throws FuseError unless the device may be used; takes no lock, which a forked child may have
// inherited locked, and a thread may hold for ever that the end has stopped.
inline void check_process() {
  if (process_state.load(std::memory_order_relaxed) != Process::Running) [[unlikely]] {
    refuse_if_over();
  }
}

// The exception that this is, and its text in a forked child and at the end.
void refuse_with(PyObject* type, const char* forked, const char* ending);
// Notes every fork from now on.
void watch_forks();
// The end begins, on this thread, which may use the device until Python is taken down: functions
// that run at exit read tensors. Other threads, daemons that is, stop at their next call of the
// device; between the two steps the caller waits for those that are inside one. No Python
// reference is dropped after the second. `unfinished` says that threads run still, which then end
// with the process, whatever they do.
void begin_to_close();
void begin_end(bool unfinished);
// At the end a thread that asks for the GIL is unwound by Python, through our frames and into
// std::terminate. Threads other than the one that ends the process stop here instead, for the
// moment that is left.
void stop_if_ending();

} // namespace fuse
