// A guard under which Python raises no interrupt.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <array>

#ifdef __linux__
#include <sys/syscall.h>
#endif

namespace fuse {

// Puts off interrupts (Ctrl-C) and alarms while it lives: Python's handlers raise exceptions
// between any two instructions, and one between a donation and the storing of its result would
// leave tensors without a value. What arrived meanwhile is raised again at the end, for the next
// instruction of the program. Python runs handlers on the main thread only; on others, where
// the process has no handler, and on systems other than Linux, this does nothing. Two system calls
// a signal: 0.5 us.
class SignalHold {
 public:
  explicit SignalHold(bool wanted) : held_(wanted && on_main_thread()) {
    if (!held_) {
      return;
    }
    struct sigaction ours{};
    ours.sa_handler = &note;
    ours.sa_flags = SA_RESTART;
    sigemptyset(&ours.sa_mask);
    for (size_t at = 0; at < kSignals.size(); ++at) {
      sigaction(kSignals[at], nullptr, &before_[at]);
      if (before_[at].sa_handler == &note) {
        before_[at].sa_handler = SIG_IGN; // an outer one holds it
      } else if (handled(before_[at])) {
        noted_[at] = 0;
        sigaction(kSignals[at], &ours, nullptr);
      }
    }
  }
  ~SignalHold() {
    for (size_t at = 0; held_ && at < kSignals.size(); ++at) {
      if (handled(before_[at])) {
        sigaction(kSignals[at], &before_[at], nullptr);
        if (noted_[at] != 0) {
          raise(kSignals[at]);
        }
      }
    }
  }
  SignalHold(const SignalHold&) = delete;
  SignalHold& operator=(const SignalHold&) = delete;

 private:
  static constexpr std::array<int, 2> kSignals{SIGINT, SIGALRM};

  static void note(int signal) {
    noted_[signal == kSignals[0] ? 0 : 1] = 1;
  }
  static bool handled(const struct sigaction& action) {
    return (action.sa_flags & SA_SIGINFO) != 0 ||
        (action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN);
  }
  static bool on_main_thread() {
#ifdef __linux__
    static thread_local const bool main = syscall(SYS_gettid) == getpid();
    return main;
#else
    return false;
#endif
  }

  inline static std::array<volatile sig_atomic_t, 2> noted_{};

  const bool held_;
  std::array<struct sigaction, 2> before_{};
};

} // namespace fuse
