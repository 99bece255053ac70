// TCP sockets between the ranks of a group, and how a rank that connects is known.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <string>

namespace fuse::distributed {

// The address by which this host reaches the store's, or the loopback's where there is none.
std::string own_address();

// The connection to a rank has closed: its process has ended, or has let go of the group.
class Lost final : public std::exception {
 public:
  explicit Lost(int rank)
      : rank_(rank), text_("rank " + std::to_string(rank) + " has closed its connection") {}
  const char* what() const noexcept override {
    return text_.c_str();
  }
  int rank() const {
    return rank_;
  }

 private:
  int rank_;
  std::string text_;
};

// A file descriptor that is closed with its owner.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int number);
  ~Descriptor();
  Descriptor(Descriptor&& other) noexcept;
  Descriptor& operator=(Descriptor&& other) noexcept;
  int get() const {
    return number_;
  }

 private:
  int number_ = -1;
};

// What whoever connects says first. The token is the listener's, known from the group's store.
struct Greeting {
  static constexpr size_t kToken = 32;
  char token[kToken];
  int32_t rank;
};

// Listens on the address by which this host reaches the store's.
class Listener {
 public:
  Listener(int rank, int backlog);
  int get() const {
    return socket_.get();
  }
  // Host, port and token, for `connected`.
  const std::string& address() const {
    return address_;
  }
  bool knows(const Greeting& greeting, int size) const;

 private:
  Descriptor socket_;
  std::string token_;
  std::string address_;
};

// A socket that is being connected to a listener, not waited for, and what is to be sent first.
Descriptor connecting(const std::string& address);
Greeting greeting_for(const std::string& address, int rank);
// How much may be sent that the other end does not read in the same exchange: see Mesh.
constexpr size_t kMostUnread = 64 << 10;
// Sockets send at once, do not block, and notice a host that has gone.
void set_up(int socket);
std::string system_error(const char* what);

} // namespace fuse::distributed
