#include "mesh.h"

#include <arpa/inet.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>
#include <thread>

#include "signals.h"

namespace fuse::distributed {

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBuffer = 4 * static_cast<int>(Mesh::kMost); // what Linux takes for itself included
constexpr size_t kToken = 32;
constexpr auto kBetweenLooks = std::chrono::milliseconds(5);
constexpr auto kBetweenChecks = std::chrono::milliseconds(200);

std::string system_error(const char* what) {
  return std::string(what) + ": " + std::strerror(errno);
}

// A file descriptor that is closed with its owner.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {
    TORCH_CHECK_WITH(DistNetworkError, number >= 0, system_error("socket"));
  }
  ~Descriptor() {
    if (number_ >= 0) {
      ::close(number_);
    }
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const {
    return number_;
  }
  int release() {
    return std::exchange(number_, -1);
  }

 private:
  int number_;
};

sockaddr_in address_of(const std::string& host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

int milliseconds_until(Clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<int64_t>(left, 0, 1 << 30));
}

void await_socket(int socket, short what, Clock::time_point deadline, const char* why) {
  pollfd one{socket, what, 0};
  int ready = 0;
  do {
    ready = ::poll(&one, 1, milliseconds_until(deadline));
  } while (ready < 0 && errno == EINTR);
  TORCH_CHECK_WITH(DistNetworkError, ready > 0, "Timed out ", why);
}

// Whether something comes within a moment.
bool is_ready(int socket) {
  pollfd one{socket, POLLIN, 0};
  return ::poll(&one, 1, static_cast<int>(kBetweenChecks.count())) > 0;
}

void set_up(int socket) {
  const int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kBuffer, sizeof(kBuffer));
  ::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &kBuffer, sizeof(kBuffer));
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes)); // a host that has gone
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
}

// Reads exactly so much from a blocking point of view, before the deadline.
void read_all(int socket, char* to, size_t count, Clock::time_point deadline) {
  while (count != 0) {
    await_socket(socket, POLLIN, deadline, "waiting for a rank's greeting");
    const ssize_t got = ::recv(socket, to, count, 0);
    TORCH_CHECK_WITH(DistNetworkError, got > 0, "a rank went away while connecting");
    to += got;
    count -= static_cast<size_t>(got);
  }
}

std::string token_for(const c10::intrusive_ptr<c10d::Store>& store, int rank) {
  if (rank == 0) {
    std::random_device random;
    std::string token;
    while (token.size() < kToken) {
      token.push_back(static_cast<char>('a' + random() % 26));
    }
    store->set("mesh/token", token);
  }
  return store->get_to_str("mesh/token");
}

// What whoever connects says first.
struct Greeting {
  char token[kToken];
  int32_t rank;
};

} // namespace

std::string own_address() {
  const char* master = std::getenv("MASTER_ADDR");
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* found = nullptr;
  if (master == nullptr || ::getaddrinfo(master, "9", &hints, &found) != 0 || found == nullptr) {
    return "127.0.0.1";
  }
  const Descriptor probe(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_in own{};
  socklen_t length = sizeof(own);
  char text[INET_ADDRSTRLEN] = "127.0.0.1";
  // Connecting a datagram socket sends nothing: it chooses the way.
  if (::connect(probe.get(), found->ai_addr, found->ai_addrlen) == 0 &&
      ::getsockname(probe.get(), reinterpret_cast<sockaddr*>(&own), &length) == 0) {
    ::inet_ntop(AF_INET, &own.sin_addr, text, sizeof(text));
  }
  ::freeaddrinfo(found);
  return text;
}

Mesh::Mesh(
    const c10::intrusive_ptr<c10d::Store>& store,
    int rank,
    int size,
    std::chrono::milliseconds timeout,
    const std::function<void()>& check)
    : rank_(rank), size_(size), sockets_(static_cast<size_t>(size), -1) {
  try {
    listen_and_connect(store, timeout, check);
  } catch (...) {
    for (const int socket : sockets_) {
      if (socket >= 0) {
        ::close(socket);
      }
    }
    throw;
  }
}

Mesh::~Mesh() {
  for (const int socket : sockets_) {
    if (socket >= 0) {
      ::close(socket);
    }
  }
}

void Mesh::listen_and_connect(
    const c10::intrusive_ptr<c10d::Store>& store,
    std::chrono::milliseconds timeout,
    const std::function<void()>& check) {
  const auto deadline = Clock::now() + timeout;
  const Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const std::string host = own_address();
  sockaddr_in address = address_of(host, 0);
  socklen_t length = sizeof(address);
  TORCH_CHECK_WITH(
      DistNetworkError,
      ::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), length) == 0 &&
          ::listen(listener.get(), size_) == 0 &&
          ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0,
      system_error("listening for the other ranks"));
  store->set("mesh/" + std::to_string(rank_), host + " " + std::to_string(ntohs(address.sin_port)));
  const std::string token = token_for(store, rank_);
  for (int peer = 0; peer < rank_; ++peer) {
    const std::string key = "mesh/" + std::to_string(peer);
    while (!store->check({key})) {
      TORCH_CHECK_WITH(
          DistNetworkError, Clock::now() < deadline, "Timed out waiting for rank ", peer);
      check();
      std::this_thread::sleep_for(kBetweenLooks);
    }
    const std::string where = store->get_to_str(key);
    const size_t space = where.find(' ');
    const sockaddr_in to = address_of(
        where.substr(0, space), static_cast<uint16_t>(std::stoi(where.substr(space + 1))));
    Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    TORCH_CHECK_WITH(
        DistNetworkError,
        ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0,
        system_error("connecting to a rank"));
    Greeting greeting{};
    std::memcpy(greeting.token, token.data(), kToken);
    greeting.rank = rank_;
    TORCH_CHECK_WITH(
        DistNetworkError,
        ::send(socket.get(), &greeting, sizeof(greeting), MSG_NOSIGNAL) == sizeof(greeting),
        system_error("greeting a rank"));
    set_up(socket.get());
    sockets_[static_cast<size_t>(peer)] = socket.release();
  }
  for (int missing = size_ - 1 - rank_; missing > 0;) {
    while (!is_ready(listener.get())) {
      TORCH_CHECK_WITH(
          DistNetworkError,
          Clock::now() < deadline,
          "Timed out waiting for ",
          missing,
          " ranks to connect");
      check();
    }
    Descriptor socket(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    Greeting greeting{};
    read_all(socket.get(), reinterpret_cast<char*>(&greeting), sizeof(greeting), deadline);
    const bool known = std::equal(token.begin(), token.end(), greeting.token) &&
        greeting.rank > rank_ && greeting.rank < size_ &&
        sockets_[static_cast<size_t>(greeting.rank)] < 0;
    if (known) {
      set_up(socket.get());
      sockets_[static_cast<size_t>(greeting.rank)] = socket.release();
      --missing;
    }
  }
}

namespace {

// Moves what can be moved at once; whether there is more.
bool send_some(int socket, Mesh::Bytes& left, size_t peer) {
  while (left.count != 0) {
    const ssize_t count = ::send(socket, left.start, left.count, MSG_NOSIGNAL);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
      return true;
    }
    TORCH_CHECK_WITH(DistNetworkError, count >= 0, "rank ", peer, " has closed its connection");
    left.start += count;
    left.count -= static_cast<size_t>(count);
  }
  return false;
}

bool read_some(int socket, Mesh::Space& left, size_t peer) {
  while (left.count != 0) {
    const ssize_t count = ::recv(socket, left.start, left.count, 0);
    if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
      return true;
    }
    TORCH_CHECK_WITH(DistNetworkError, count > 0, "rank ", peer, " has closed its connection");
    left.start += count;
    left.count -= static_cast<size_t>(count);
  }
  return false;
}

// Waits for one of the sockets; lets signal handlers run where the thread is Python's.
void await_any(
    std::vector<pollfd>& waited,
    Clock::time_point deadline,
    std::chrono::milliseconds timeout,
    size_t peer) {
  const int patience = milliseconds_until(deadline);
  const int step = helping ? std::min(patience, kBetweenSignals) : patience;
  const int ready = ::poll(waited.data(), waited.size(), step);
  if (ready <= 0 && helping) {
    run_signal_handlers();
  }
  TORCH_CHECK_WITH(
      DistNetworkError,
      ready > 0 || step < patience || (ready < 0 && errno == EINTR),
      "Timed out after ",
      timeout.count(),
      " ms waiting for rank ",
      peer);
}

} // namespace

void Mesh::exchange(
    const std::vector<Bytes>& out,
    const std::vector<Space>& in,
    std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  std::vector<Bytes> sending(out);
  std::vector<Space> reading(in);
  std::vector<pollfd> waited;
  for (;;) {
    waited.clear();
    size_t missing = 0;
    for (size_t peer = 0; peer < sockets_.size(); ++peer) {
      const int socket = sockets_[peer];
      if (socket < 0) {
        continue;
      }
      // Straight away: most often it can be sent, or has come already.
      const bool sends = send_some(socket, sending[peer], peer);
      const bool reads = read_some(socket, reading[peer], peer);
      if (sends || reads) {
        const int events = (sends ? POLLOUT : 0) | (reads ? POLLIN : 0);
        waited.push_back({socket, static_cast<short>(events), 0});
        missing = peer;
      }
    }
    if (waited.empty()) {
      return;
    }
    await_any(waited, deadline, timeout, missing);
  }
}

} // namespace fuse::distributed
