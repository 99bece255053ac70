// A link: a connection that carries messages one way.
#pragma once

#include <deque>
#include <list>
#include <map>

#include "transport/message.h"
#include "transport/sockets.h"

namespace fuse::distributed {

// What is sent on a link. Its maker sends Offer and Data, the other end Accept and Refuse.
struct Frame {
  enum Kind : int32_t { Offer, Data, Accept, Refuse };
  Kind kind = Offer;
  int32_t tag = 0;
  uint64_t id = 0; // of the message, on its link
  uint64_t bytes = 0; // of the message; of Refuse, how many are expected
};

// Final. Neither end waits in here: what cannot be moved yet is moved by a later call.
class Link final {
 public:
  // Ours, to the rank that listens at the address.
  Link(int peer, const std::string& address, int rank);
  // The other end: `peer` is known once it has greeted.
  explicit Link(Descriptor socket);

  int peer = -1;
  uint64_t sent = 0; // messages offered
  std::map<uint64_t, Message> offered; // not accepted yet
  std::list<Frame> offers; // of the peer's, that nobody has received yet
  std::map<uint64_t, Message> accepted; // to be received

  void write(const Frame& frame);
  // The message's bytes after their frame; its end is called once they have gone.
  void write(const Frame& frame, Message message);
  // Moves what can be moved. Throws Lost where the connection has closed.
  void flush();
  // The next frame, if one has come whole. Its bytes are to be read next where it is Data.
  std::optional<Frame> read_frame();
  std::optional<Greeting> read_greeting();
  // Goes on reading the bytes of an accepted message; whether there are more to come.
  bool read_bytes();
  // What is being read or written, which fails where the connection does.
  std::vector<Message> under_way();
  bool has_late(Clock::time_point now) const;

  int socket() const {
    return socket_.get();
  }
  bool wants_to_write() const {
    return !writing_.empty();
  }
  void begin_reading(uint64_t id);
  bool is_reading_bytes() const {
    return reading_.has_value();
  }

 private:
  struct Piece {
    std::string head;
    std::optional<Message> message;
    size_t done = 0;
  };
  template <typename Value>
  std::optional<Value> read_value();
  bool send_some(const char* start, size_t count, size_t& done);

  Descriptor socket_;
  std::deque<Piece> writing_;
  std::string read_; // of a frame or greeting that has not come whole
  std::optional<Message> reading_;
  size_t got_ = 0; // bytes of it
};

} // namespace fuse::distributed
