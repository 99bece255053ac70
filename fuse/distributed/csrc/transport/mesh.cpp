#include "transport/mesh.h"

#include <c10/util/Exception.h>
#include <c10/util/ScopeExit.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <thread>

#include "transport/signals.h"
#include "transport/within.h"

namespace fuse::distributed {

namespace {

constexpr auto kBetweenLooks = std::chrono::milliseconds(5);
constexpr auto kBetweenChecks = std::chrono::milliseconds(200);

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

// Moves exactly so much from a blocking point of view, before the deadline; what is read with
// `receive` and a buffer, what is sent with `send`.
template <typename Move>
void move_all(int socket, short what, size_t count, Clock::time_point deadline, Move move) {
  for (size_t done = 0; done < count;) {
    await_socket(socket, what, deadline, "waiting for a rank's greeting");
    const ssize_t moved = move(done);
    TORCH_CHECK_WITH(
        DistNetworkError, moved > 0, system_error("a rank went away while connecting"));
    done += static_cast<size_t>(moved);
  }
}

std::string key_of(int rank) {
  return "mesh/" + std::to_string(rank);
}

// The address of a rank, once it listens.
std::string await_address(
    const c10::intrusive_ptr<c10d::Store>& store,
    int peer,
    Clock::time_point deadline,
    const std::function<void()>& check) {
  struct Asked {
    std::string address;
    std::atomic<bool> given_up{false};
  };
  const auto asked = std::make_shared<Asked>();
  const auto give_up = c10::make_scope_exit([asked] { asked->given_up = true; });
  const auto ask = [store, peer, asked] {
    while (!asked->given_up && !store->check({key_of(peer)})) {
      std::this_thread::sleep_for(kBetweenLooks);
    }
    if (!asked->given_up) {
      asked->address = store->get_to_str(key_of(peer));
    }
  };
  TORCH_CHECK_WITH(
      DistNetworkError, within(deadline, ask, check), "Timed out waiting for rank ", peer);
  return asked->address;
}

} // namespace

Mesh::Mesh(
    const c10::intrusive_ptr<c10d::Store>& store,
    int rank,
    int size,
    std::chrono::milliseconds timeout,
    const std::function<void()>& check)
    : sockets_(static_cast<size_t>(size)) {
  const auto deadline = Clock::now() + timeout;
  const Listener listener(rank, size);
  store->set(key_of(rank), listener.address());
  for (int peer = 0; peer < rank; ++peer) {
    const std::string address = await_address(store, peer, deadline, check);
    Descriptor socket = connecting(address);
    const Greeting greeting = greeting_for(address, rank);
    const char* bytes = reinterpret_cast<const char*>(&greeting);
    move_all(socket.get(), POLLOUT, sizeof(greeting), deadline, [&](size_t done) {
      return ::send(socket.get(), bytes + done, sizeof(greeting) - done, MSG_NOSIGNAL);
    });
    sockets_[static_cast<size_t>(peer)] = std::move(socket);
  }
  for (int missing = size - 1 - rank; missing > 0;) {
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
    set_up(socket.get());
    Greeting greeting{};
    char* bytes = reinterpret_cast<char*>(&greeting);
    move_all(socket.get(), POLLIN, sizeof(greeting), deadline, [&](size_t done) {
      return ::recv(socket.get(), bytes + done, sizeof(greeting) - done, 0);
    });
    if (listener.knows(greeting, size) && greeting.rank > rank &&
        sockets_[static_cast<size_t>(greeting.rank)].get() < 0) {
      sockets_[static_cast<size_t>(greeting.rank)] = std::move(socket);
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
    if (count < 0) {
      throw Lost(static_cast<int>(peer));
    }
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
    if (count <= 0) {
      throw Lost(static_cast<int>(peer));
    }
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
      const int socket = sockets_[peer].get();
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
