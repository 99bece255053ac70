#include "transport/process.h"

#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "check.h"

namespace fuse::distributed {

namespace {

// A child's name, as it wrote it, and what it has as its end to wait for.
class Child {
 public:
  Child() {
    int names[2], gates[2];
    if (::pipe(names) != 0 || ::pipe(gates) != 0) {
      return;
    }
    number_ = ::fork();
    if (number_ == 0) {
      const std::string name = own_process();
      char letter = 0;
      ::close(gates[1]);
      const bool written = ::write(names[1], name.data(), name.size()) > 0;
      ::_exit(written && ::read(gates[0], &letter, 1) == 0 ? 0 : 1);
    }
    char text[512];
    ::close(names[1]);
    ::close(gates[0]);
    const ssize_t length = ::read(names[0], text, sizeof(text));
    name_.assign(text, length > 0 ? static_cast<size_t>(length) : 0);
    ::close(names[0]);
    gate_ = gates[1];
  }
  ~Child() {
    end();
    collect();
  }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  const std::string& name() const {
    return name_;
  }
  // Lets it end; it is a zombie from then on.
  void end() {
    if (gate_ >= 0) {
      ::close(gate_);
      gate_ = -1;
      siginfo_t info{};
      ::waitid(P_PID, static_cast<id_t>(number_), &info, WEXITED | WNOWAIT);
    }
  }
  void collect() {
    if (number_ > 0) {
      ::waitpid(number_, nullptr, 0);
      number_ = -1;
    }
  }

 private:
  pid_t number_ = -1;
  int gate_ = -1;
  std::string name_;
};

TEST(a_process_that_runs_has_not_ended) {
  CHECK(own_process() == own_process());
  CHECK(!has_ended(own_process()));
  const Child child;
  CHECK(child.name() != own_process());
  CHECK(!has_ended(child.name()));
}

TEST(a_zombie_has_ended) {
  Child child;
  child.end();
  CHECK(has_ended(child.name()));
}

TEST(a_process_that_is_gone_has_ended) {
  Child child;
  child.end();
  child.collect();
  CHECK(has_ended(child.name()));
}

TEST(a_number_that_is_another_process_now_has_ended) {
  const std::string own = own_process();
  CHECK(has_ended(own.substr(0, own.rfind(' ')) + " 1"));
}

TEST(nothing_is_said_of_another_host_or_of_no_name) {
  const std::string own = own_process();
  CHECK(!has_ended("elsewhere" + own.substr(own.find(' '))));
  CHECK(!has_ended(""));
  CHECK(!has_ended("? 1 1"));
}

} // namespace

} // namespace fuse::distributed
