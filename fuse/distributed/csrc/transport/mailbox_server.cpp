#include "transport/mailbox_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

#include "transport/threads.h"

namespace fuse::distributed {

namespace {

constexpr auto kSoon = std::chrono::milliseconds(10);
constexpr auto kBetweenRounds = std::chrono::milliseconds(250); // while somebody waits

std::string mailbox_key(int rank) {
  return "mailbox/" + std::to_string(rank);
}

// On another thread: to say who is to blame takes its time.
void fail(Message message, Failure failure) {
  Threads::global().run(
      [message = std::move(message), failure = std::move(failure)] { message.end(failure, -1); });
}

} // namespace

void MailboxServer::serve() {
  while (take()) {
    look_up_addresses();
    accept_links();
    move_all();
    match();
    move_all();
    give_up_on_the_gone();
    expire();
    wait();
  }
  const Failure over{"the process group has been destroyed, or has failed"};
  for (auto* links : {&to_, &from_}) {
    while (!links->empty()) {
      close(links->begin(), over);
    }
  }
  for (auto* messages : {&unsent_, &receives_}) {
    for (Message& message : *messages) {
      fail(std::move(message), over);
    }
  }
}

// Takes what is new; false once the mailbox is to end.
bool MailboxServer::take() {
  uint64_t wakeups = 0;
  [[maybe_unused]] const ssize_t got = ::read(wakeup_.get(), &wakeups, sizeof(wakeups));
  std::unique_lock<std::mutex> lock(mutex_);
  auto sends = std::exchange(to_send, {});
  auto receives = std::exchange(to_receive, {});
  const auto addresses = std::exchange(addresses_, {});
  const bool goes_on = !stopped_;
  lock.unlock();
  if (!addresses.empty() || !sends.empty()) {
    pause_ = kSoon;
  }
  for (const auto& [peer, address] : addresses) {
    connect(peer, address);
  }
  unsent_.insert(unsent_.end(), std::move_iterator(sends.begin()), std::move_iterator(sends.end()));
  receives_.insert(
      receives_.end(), std::move_iterator(receives.begin()), std::move_iterator(receives.end()));
  unsent_.remove_if([&](Message& message) {
    const int peer = message.peer;
    if (lost_to_.count(peer) != 0) {
      fail(std::move(message), {Lost(peer).what(), peer, true});
      return true;
    }
    Link* link = link_to(peer);
    if (link != nullptr) {
      offer(*link, std::move(message));
    }
    return link != nullptr;
  });
  return goes_on;
}

void MailboxServer::connect(int peer, const std::string& address) {
  try {
    to_.emplace_back(peer, address, rank_);
  } catch (const c10::Error& error) { // no way there, or too many open files
    const Failure failure{error.what_without_backtrace(), peer};
    unsent_.remove_if([&](Message& message) {
      const bool goes_there = message.peer == peer;
      if (goes_there) {
        fail(std::move(message), failure);
      }
      return goes_there;
    });
  }
}

Link* MailboxServer::link_to(int rank) {
  const auto found =
      std::find_if(to_.begin(), to_.end(), [rank](const Link& link) { return link.peer == rank; });
  return found == to_.end() ? nullptr : &*found;
}

void MailboxServer::offer(Link& link, Message message) {
  const uint64_t id = ++link.sent;
  link.write({Frame::Offer, message.tag, id, message.bytes.nbytes()});
  link.offered.emplace(id, std::move(message));
}

// Says where this rank listens, and finds where others do, on another thread: the store may block.
void MailboxServer::look_up_addresses() {
  std::set<int> wanted;
  for (const Message& message : unsent_) {
    wanted.insert(message.peer);
  }
  std::lock_guard<std::mutex> guard(mutex_);
  if (looking_up_ || Clock::now() < lookup_at_ || (published_ && wanted.empty())) {
    return;
  }
  looking_up_ = true;
  lookup_at_ = Clock::now() + pause_;
  pause_ = std::min(2 * pause_, kBetweenRounds);
  Threads::global().run([self = shared_from_this(), wanted] {
    std::map<int, std::string> found;
    bool published = self->published_;
    try {
      if (!published) {
        self->store_ = self->store_->clone(); // the group's own may be waited on for long
        self->store_->set(mailbox_key(self->rank_), self->listener_.address());
        published = true;
      }
      for (const int peer : wanted) {
        if (self->store_->check({mailbox_key(peer)})) {
          found[peer] = self->store_->get_to_str(mailbox_key(peer));
        }
      }
    } catch (const std::exception&) {
      // The store has gone: whoever waits for it is told so when its time is up.
    }
    {
      std::lock_guard<std::mutex> guard(self->mutex_);
      self->published_ = published;
      self->addresses_.insert(found.begin(), found.end());
      self->looking_up_ = false;
    }
    if (!found.empty()) {
      self->wake();
    }
  });
}

void MailboxServer::accept_links() {
  for (;;) {
    const int socket = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (socket < 0) {
      return;
    }
    from_.emplace_back(Descriptor(socket));
  }
}

// Gives receives the first offers that they are for.
void MailboxServer::match() {
  receives_.remove_if([this](Message& message) { return match_one(message); });
}

bool MailboxServer::match_one(Message& message) {
  for (Link& link : from_) {
    if (message.peer >= 0 && link.peer != message.peer) {
      continue;
    }
    const auto found = std::find_if(link.offers.begin(), link.offers.end(), [&](const Frame& f) {
      return f.tag == message.tag;
    });
    if (found == link.offers.end()) {
      continue;
    }
    Frame answer = *found;
    link.offers.erase(found);
    const uint64_t expected = message.bytes.nbytes();
    const bool fits = answer.bytes == expected;
    if (!fits) {
      const std::string what = "rank " + std::to_string(link.peer) + " sends " +
          std::to_string(answer.bytes) + " bytes, and " + std::to_string(expected) +
          " are expected here; none have moved";
      fail(std::move(message), {what});
    } else {
      link.accepted.emplace(answer.id, std::move(message));
    }
    answer.kind = fits ? Frame::Accept : Frame::Refuse;
    answer.bytes = expected;
    link.write(answer);
    return true;
  }
  return false;
}

void MailboxServer::read(Link& link) {
  if (link.peer < 0) {
    const auto greeting = link.read_greeting();
    if (!greeting) {
      return;
    }
    if (!listener_.knows(*greeting, size_)) {
      throw Lost(-1);
    }
    link.peer = greeting->rank;
  }
  for (;;) {
    if (link.is_reading_bytes() && link.read_bytes()) {
      return;
    }
    const auto frame = link.read_frame();
    if (!frame) {
      return;
    }
    answer(link, *frame);
  }
}

void MailboxServer::answer(Link& link, const Frame& frame) {
  switch (frame.kind) {
    case Frame::Offer: link.offers.push_back(frame); return;
    case Frame::Data: link.begin_reading(frame.id); return;
    case Frame::Accept:
    case Frame::Refuse: {
      const auto found = link.offered.find(frame.id);
      if (found == link.offered.end()) {
        throw Lost(link.peer);
      }
      Message message = std::move(found->second);
      link.offered.erase(found);
      if (frame.kind == Frame::Refuse) {
        const std::string what = "rank " + std::to_string(link.peer) + " expects " +
            std::to_string(frame.bytes) + " bytes, not the " +
            std::to_string(message.bytes.nbytes()) + " that are sent here; none have moved";
        fail(std::move(message), {what});
      } else {
        link.write({Frame::Data, frame.tag, frame.id, frame.bytes}, std::move(message));
      }
      return;
    }
  }
  throw Lost(link.peer); // not what a rank of this group would send
}

void MailboxServer::close(std::list<Link>::iterator link, const Failure& failure) {
  const bool ours = std::any_of(to_.begin(), to_.end(), [&](auto& one) { return &one == &*link; });
  for (Message& message : link->under_way()) {
    fail(std::move(message), failure);
  }
  if (link->peer >= 0) {
    (ours ? lost_to_ : lost_from_).insert(link->peer);
  }
  (ours ? to_ : from_).erase(link);
}

void MailboxServer::move_all() {
  for (auto* links : {&to_, &from_}) {
    for (auto link = links->begin(); link != links->end();) {
      const auto now = link++;
      try {
        now->flush();
        read(*now);
      } catch (const Lost& lost) {
        close(now, {lost.what(), now->peer, true});
      }
    }
  }
}

// What is late by its own time fails, and with it a connection on which it is half done.
void MailboxServer::expire() {
  const auto now = Clock::now();
  const auto timed_out = [](int peer) {
    const std::string whom = peer < 0 ? "any rank" : "rank " + std::to_string(peer);
    return Failure{"Timed out waiting for " + whom, peer};
  };
  for (auto* messages : {&unsent_, &receives_}) {
    messages->remove_if([&](Message& message) {
      const bool late = message.deadline < now;
      if (late) {
        const int peer = message.peer;
        fail(std::move(message), timed_out(peer));
      }
      return late;
    });
  }
  for (auto* links : {&to_, &from_}) {
    for (auto link = links->begin(); link != links->end();) {
      const auto one = link++;
      if (one->has_late(now)) {
        close(one, timed_out(one->peer));
      }
    }
  }
}

bool MailboxServer::may_send(int rank) const {
  const bool linked = std::any_of(
      from_.begin(), from_.end(), [rank](const Link& link) { return link.peer == rank; });
  return linked || (lost_from_.count(rank) == 0 && heartbeat_->end_of(rank).empty());
}

// Fails what waits for ranks that have ended; a link to or from them tells by itself.
void MailboxServer::give_up_on_the_gone() {
  unsent_.remove_if([this](Message& message) {
    const int peer = message.peer;
    const std::string end = heartbeat_->end_of(peer);
    if (!end.empty()) {
      fail(std::move(message), {"rank " + std::to_string(peer) + " " + end, peer});
    }
    return !end.empty();
  });
  receives_.remove_if([this](Message& message) {
    const int peer = message.peer;
    bool any = peer >= 0 ? may_send(peer) : false;
    for (int rank = 0; rank < size_ && peer < 0; ++rank) {
      any = any || (rank != rank_ && may_send(rank));
    }
    if (!any) {
      const bool lost = peer >= 0 && lost_from_.count(peer) != 0;
      const std::string what = peer < 0 ? "every other rank has ended"
          : lost                        ? Lost(peer).what()
                                        : "rank " + std::to_string(peer) + " has ended";
      fail(std::move(message), {what, peer, lost});
    }
    return !any;
  });
}

void MailboxServer::wait() {
  std::vector<pollfd> waited{{wakeup_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  bool pending = !unsent_.empty() || !receives_.empty();
  for (auto* links : {&to_, &from_}) {
    for (Link& link : *links) {
      const int events = POLLIN | (link.wants_to_write() ? POLLOUT : 0);
      waited.push_back({link.socket(), static_cast<short>(events), 0});
      pending = pending || !link.offered.empty() || !link.accepted.empty() ||
          link.wants_to_write() || link.is_reading_bytes();
    }
  }
  std::unique_lock<std::mutex> lock(mutex_);
  const bool lookups = !published_ || !unsent_.empty();
  lock.unlock();
  const auto step = lookups ? pause_ : kBetweenRounds;
  ::poll(waited.data(), waited.size(), lookups || pending ? static_cast<int>(step.count()) : -1);
}

} // namespace fuse::distributed
