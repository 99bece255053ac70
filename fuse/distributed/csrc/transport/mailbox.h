// The mailbox: messages from one rank of a group to another one, which need these two alone.
#pragma once

#include <torch/csrc/distributed/c10d/Store.hpp>

#include <memory>

#include "transport/heartbeat.h"
#include "transport/message.h"

namespace fuse::distributed {

class MailboxServer;

// A connection to each rank that something is sent to, made when it is; one thread serves them. A
// message is offered, and moves when its receiver has room for it. Messages of one tag arrive in
// the order in which they were sent; a rank may send to itself.
class Mailbox final {
 public:
  Mailbox(
      const c10::intrusive_ptr<c10d::Store>& store,
      std::shared_ptr<Heartbeat> heartbeat,
      int rank,
      int size);
  ~Mailbox(); // what is under way fails
  Mailbox(const Mailbox&) = delete;
  Mailbox& operator=(const Mailbox&) = delete;

  void send(Message message);
  void receive(Message message);

 private:
  std::shared_ptr<MailboxServer> server_;
};

} // namespace fuse::distributed
