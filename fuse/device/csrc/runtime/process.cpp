#include "runtime/process.h"

#include <pthread.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>
#include <thread>

#include "runtime/python_bridge.h"

namespace fuse {

std::atomic<Process> process_state{Process::Running};

namespace {

struct Refusal {
  PyObject* type = nullptr;
  std::string forked;
  std::string ending;
};

Refusal& refusal() {
  static auto* found = new Refusal;
  return *found;
}

std::thread::id ending_thread; // set before the state is
std::terminate_handler terminate_before = nullptr;

bool is_finalizing() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsFinalizing() != 0;
#else
  return _Py_IsFinalizing() != 0;
#endif
}

// Stops a thread other than the one that ends the process once the end is as far as this. Without
// the GIL, which the end needs: asking for it again would unwind the thread.
void stop_if_over(Process since) {
  if (process_state.load(std::memory_order_acquire) < since ||
      std::this_thread::get_id() == ending_thread) {
    return;
  }
  if (PyGILState_Check() != 0) {
    PyEval_SaveThread();
  }
  for (;;) {
    std::this_thread::sleep_for(std::chrono::hours(1));
  }
}

// What Python unwinds at the end in frames of others comes here: it rests like what stops in ours.
void rest_or_terminate() {
  stop_if_ending();
  if (terminate_before != nullptr) {
    terminate_before();
  }
  std::abort();
}

// Runs before any static object is destroyed, which threads that run still may be using.
void leave_at_once(int status, void*) {
  std::fflush(nullptr);
  _exit(status);
}

} // namespace

void refuse_if_over() {
  stop_if_over(Process::Closing);
  const bool forked = process_state.load(std::memory_order_relaxed) == Process::Forked;
  if (!forked && !is_finalizing()) {
    return;
  }
  GilGuard gil;
  const Refusal& found = refusal();
  PyErr_SetString(found.type, (forked ? found.forked : found.ending).c_str());
  throw_python_error();
}

void refuse_with(PyObject* type, const char* forked, const char* ending) {
  Py_INCREF(type);
  refusal() = {type, forked, ending};
}

void watch_forks() {
  pthread_atfork(nullptr, nullptr, [] { process_state.store(Process::Forked); });
}

void begin_to_close() {
  ending_thread = std::this_thread::get_id();
  process_state.store(Process::Closing, std::memory_order_release);
}

void begin_end(bool unfinished) {
  process_state.store(Process::Ending, std::memory_order_release);
  terminate_before = std::set_terminate(rest_or_terminate);
#ifdef __GLIBC__
  if (unfinished) {
    on_exit(leave_at_once, nullptr);
  }
#endif
}

void stop_if_ending() {
  stop_if_over(Process::Ending);
}

} // namespace fuse
