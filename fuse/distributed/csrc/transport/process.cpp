#include "transport/process.h"

#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <fstream>
#include <sstream>

namespace fuse::distributed {

namespace {

constexpr const char* kUnknown = "?";

// Differs between hosts, their boots, and containers that number processes for themselves.
const std::string& own_host() {
  static const std::string host = [] {
    std::string boot;
    std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
    char space[PATH_MAX];
    const ssize_t length = ::readlink("/proc/self/ns/pid", space, sizeof(space));
    return boot.empty() || length <= 0
        ? std::string(kUnknown)
        : boot + '/' + std::string(space, static_cast<size_t>(length));
  }();
  return host;
}

// What Linux says of a process: its state, a letter, and when it was started; see proc(5).
struct Status {
  char state = 0;
  std::string start;
};

Status status_of(long number) {
  constexpr int kBetweenStateAndStart = 18;
  std::ifstream file("/proc/" + std::to_string(number) + "/stat");
  std::string text;
  std::getline(file, text, '\0');
  Status found;
  const size_t name = text.rfind(')'); // the name may have any letters
  if (name != std::string::npos) {
    std::istringstream fields(text.substr(name + 1));
    fields >> found.state;
    for (int skipped = 0; skipped <= kBetweenStateAndStart; ++skipped) {
      fields >> found.start;
    }
  }
  return found;
}

} // namespace

std::string own_process() {
  const Status status = status_of(::getpid());
  return own_host() + ' ' + std::to_string(::getpid()) + ' ' +
      (status.start.empty() ? kUnknown : status.start);
}

bool has_ended(const std::string& process) {
  std::istringstream text(process);
  std::string host;
  std::string start;
  long number = 0;
  if (!(text >> host >> number >> start) || host == kUnknown || host != own_host()) {
    return false;
  }
  if (::kill(static_cast<pid_t>(number), 0) != 0 && errno == ESRCH) {
    return true;
  }
  const Status now = status_of(number);
  const bool zombie = now.state == 'Z' || now.state == 'X';
  const bool another = start != kUnknown && !now.start.empty() && now.start != start;
  return zombie || another;
}

} // namespace fuse::distributed
