#include "transport/sockets.h"

#include <arpa/inet.h>
#include <c10/util/Exception.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <random>
#include <sstream>
#include <utility>

namespace fuse::distributed {

namespace {

constexpr int kBuffer = 4 * static_cast<int>(kMostUnread); // what Linux takes for itself included

sockaddr_in address_of(const std::string& host, uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  ::inet_pton(AF_INET, host.c_str(), &address.sin_addr);
  return address;
}

std::string new_token() {
  std::random_device random;
  std::string token;
  while (token.size() < Greeting::kToken) {
    token.push_back(static_cast<char>('a' + random() % 26));
  }
  return token;
}

} // namespace

std::string system_error(const char* what) {
  return std::string(what) + ": " + std::strerror(errno);
}

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

Descriptor::Descriptor(int number) : number_(number) {
  TORCH_CHECK_WITH(DistNetworkError, number >= 0, system_error("socket"));
}

Descriptor::~Descriptor() {
  if (number_ >= 0) {
    ::close(number_);
  }
}

Descriptor::Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(number_, other.number_);
  return *this;
}

Listener::Listener(int rank, int backlog)
    : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
      token_(new_token()) {
  const std::string host = own_address();
  sockaddr_in address = address_of(host, 0);
  socklen_t length = sizeof(address);
  TORCH_CHECK_WITH(
      DistNetworkError,
      ::bind(get(), reinterpret_cast<sockaddr*>(&address), length) == 0 &&
          ::listen(get(), backlog) == 0 &&
          ::getsockname(get(), reinterpret_cast<sockaddr*>(&address), &length) == 0,
      system_error("listening for the other ranks"),
      " (rank ",
      rank,
      " on ",
      host,
      ")");
  address_ = host + " " + std::to_string(ntohs(address.sin_port)) + " " + token_;
}

bool Listener::knows(const Greeting& greeting, int size) const {
  return std::equal(token_.begin(), token_.end(), greeting.token) && greeting.rank >= 0 &&
      greeting.rank < size;
}

Descriptor connecting(const std::string& address) {
  std::istringstream parts(address);
  std::string host;
  uint16_t port = 0;
  parts >> host >> port;
  const sockaddr_in to = address_of(host, port);
  Descriptor socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  set_up(socket.get());
  TORCH_CHECK_WITH(
      DistNetworkError,
      ::connect(socket.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) == 0 ||
          errno == EINPROGRESS,
      system_error("connecting to a rank"),
      " (",
      host,
      ")");
  return socket;
}

Greeting greeting_for(const std::string& address, int rank) {
  Greeting greeting{};
  const std::string token = address.substr(address.rfind(' ') + 1);
  std::memcpy(greeting.token, token.data(), std::min(token.size(), Greeting::kToken));
  greeting.rank = rank;
  return greeting;
}

void set_up(int socket) {
  const int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
  ::setsockopt(socket, SOL_SOCKET, SO_SNDBUF, &kBuffer, sizeof(kBuffer));
  ::setsockopt(socket, SOL_SOCKET, SO_RCVBUF, &kBuffer, sizeof(kBuffer));
  ::setsockopt(socket, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof(yes)); // a host that has gone
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
}

} // namespace fuse::distributed
