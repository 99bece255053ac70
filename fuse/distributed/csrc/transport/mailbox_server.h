// The thread of a mailbox, and all that it knows.
#pragma once

#include <sys/eventfd.h>
#include <unistd.h>

#include <chrono>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "transport/heartbeat.h"
#include "transport/link.h"
#include "transport/message.h"

namespace fuse::distributed {

// All but what `mutex_` guards is its thread's alone.
class MailboxServer final : public std::enable_shared_from_this<MailboxServer> {
 public:
  MailboxServer(
      const c10::intrusive_ptr<c10d::Store>& store,
      std::shared_ptr<Heartbeat> heartbeat,
      int rank,
      int size)
      : rank_(rank),
        size_(size),
        heartbeat_(std::move(heartbeat)),
        listener_(rank, size),
        wakeup_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        store_(store) {}

  void add(std::deque<Message> MailboxServer::* where, Message message) {
    {
      std::lock_guard<std::mutex> guard(mutex_);
      (this->*where).push_back(std::move(message));
    }
    wake();
  }
  void stop() {
    {
      std::lock_guard<std::mutex> guard(mutex_);
      stopped_ = true;
    }
    wake();
  }
  void serve();

  std::deque<Message> to_send, to_receive; // new ones; guarded

 private:
  void wake() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wakeup_.get(), &one, sizeof(one));
  }
  bool take();
  void look_up_addresses();
  void offer(Link& link, Message message);
  void accept_links();
  void match();
  bool match_one(Message& message);
  void read(Link& link);
  void answer(Link& link, const Frame& frame);
  void close(std::list<Link>::iterator link, const Failure& failure);
  void move_all();
  void expire();
  void give_up_on_the_gone();
  bool may_send(int rank) const;
  void wait();
  void connect(int peer, const std::string& address);
  Link* link_to(int rank);

  int rank_;
  int size_;
  std::shared_ptr<Heartbeat> heartbeat_;
  Listener listener_;
  Descriptor wakeup_;
  std::list<Link> to_, from_; // links of ours, and of others
  std::set<int> lost_to_, lost_from_; // ranks whose link has closed
  std::list<Message> unsent_; // no link to their rank yet
  std::list<Message> receives_; // not offered yet
  Clock::time_point lookup_at_;
  std::chrono::milliseconds pause_{10}; // between lookups: longer while they are in vain

  std::mutex mutex_;
  c10::intrusive_ptr<c10d::Store> store_; // a lookup's, of which there is one at a time
  bool published_ = false; // likewise
  bool stopped_ = false;
  bool looking_up_ = false;
  std::map<int, std::string> addresses_;
};

} // namespace fuse::distributed
