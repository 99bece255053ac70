#include "transport/link.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace fuse::distributed {

namespace {

template <typename Value>
std::string bytes_of(const Value& value) {
  return {reinterpret_cast<const char*>(&value), sizeof(value)};
}

} // namespace

Link::Link(int to, const std::string& address, int rank) : peer(to), socket_(connecting(address)) {
  writing_.push_back({bytes_of(greeting_for(address, rank)), std::nullopt});
}

Link::Link(Descriptor socket) : socket_(std::move(socket)) {
  set_up(socket_.get());
}

void Link::write(const Frame& frame) {
  writing_.push_back({bytes_of(frame), std::nullopt});
}

void Link::write(const Frame& frame, Message message) {
  writing_.push_back({bytes_of(frame), std::move(message)});
}

// Whether all has gone.
bool Link::send_some(const char* start, size_t count, size_t& done) {
  while (done < count) {
    const ssize_t moved = ::send(socket(), start + done, count - done, MSG_NOSIGNAL);
    if (moved < 0 && (errno == EAGAIN || errno == EINTR)) {
      return false;
    }
    if (moved < 0) {
      throw Lost(peer);
    }
    done += static_cast<size_t>(moved);
  }
  return true;
}

void Link::flush() {
  while (!writing_.empty()) {
    Piece& piece = writing_.front();
    size_t left = piece.head.size();
    if (piece.done < left && !send_some(piece.head.data(), left, piece.done)) {
      return;
    }
    if (piece.message) {
      const at::Tensor& bytes = piece.message->bytes;
      size_t done = piece.done - left;
      const bool all =
          send_some(static_cast<const char*>(bytes.const_data_ptr()), bytes.nbytes(), done);
      piece.done = left + done;
      if (!all) {
        return;
      }
    }
    const std::optional<Message> gone = std::exchange(piece.message, std::nullopt);
    writing_.pop_front();
    if (gone) {
      gone->end(std::nullopt, peer);
    }
  }
}

template <typename Value>
std::optional<Value> Link::read_value() {
  while (read_.size() < sizeof(Value)) {
    char buffer[sizeof(Value)];
    const ssize_t got = ::recv(socket(), buffer, sizeof(Value) - read_.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      return std::nullopt;
    }
    if (got <= 0) {
      throw Lost(peer);
    }
    read_.append(buffer, static_cast<size_t>(got));
  }
  Value value;
  std::memcpy(&value, read_.data(), sizeof(value));
  read_.clear();
  return value;
}

std::optional<Frame> Link::read_frame() {
  return read_value<Frame>();
}

std::optional<Greeting> Link::read_greeting() {
  return read_value<Greeting>();
}

void Link::begin_reading(uint64_t id) {
  const auto found = accepted.find(id);
  if (found == accepted.end()) {
    throw Lost(peer); // not what a rank of this group would send
  }
  reading_ = std::move(found->second);
  accepted.erase(found);
  got_ = 0;
}

bool Link::read_bytes() {
  char* start = static_cast<char*>(reading_->bytes.mutable_data_ptr());
  while (got_ < reading_->bytes.nbytes()) {
    const ssize_t got = ::recv(socket(), start + got_, reading_->bytes.nbytes() - got_, 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) {
      return true;
    }
    if (got <= 0) {
      throw Lost(peer);
    }
    got_ += static_cast<size_t>(got);
  }
  const Message whole = std::move(*std::exchange(reading_, std::nullopt));
  whole.end(std::nullopt, peer);
  return false;
}

std::vector<Message> Link::under_way() {
  std::vector<Message> found;
  for (auto* messages : {&offered, &accepted}) {
    for (auto& [id, message] : *messages) {
      found.push_back(std::move(message));
    }
    messages->clear();
  }
  for (Piece& piece : writing_) {
    if (piece.message) {
      found.push_back(std::move(*piece.message));
    }
  }
  writing_.clear();
  if (reading_) {
    found.push_back(std::move(*std::exchange(reading_, std::nullopt)));
  }
  return found;
}

bool Link::has_late(Clock::time_point now) const {
  const auto late = [now](const auto& one) { return one.second.deadline < now; };
  return std::any_of(offered.begin(), offered.end(), late) ||
      std::any_of(accepted.begin(), accepted.end(), late) ||
      (reading_ && reading_->deadline < now) ||
      std::any_of(writing_.begin(), writing_.end(), [now](const Piece& piece) {
           return piece.message && piece.message->deadline < now;
         });
}

} // namespace fuse::distributed
