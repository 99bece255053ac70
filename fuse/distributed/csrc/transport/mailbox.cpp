#include "transport/mailbox.h"

#include <thread>
#include <utility>

#include "transport/mailbox_server.h"

namespace fuse::distributed {

Mailbox::Mailbox(
    const c10::intrusive_ptr<c10d::Store>& store,
    std::shared_ptr<Heartbeat> heartbeat,
    int rank,
    int size)
    : server_(std::make_shared<MailboxServer>(store, std::move(heartbeat), rank, size)) {
  std::thread([server = server_] { server->serve(); }).detach();
}

Mailbox::~Mailbox() {
  server_->stop();
}

void Mailbox::send(Message message) {
  server_->add(&MailboxServer::to_send, std::move(message));
}

void Mailbox::receive(Message message) {
  server_->add(&MailboxServer::to_receive, std::move(message));
}

} // namespace fuse::distributed
