// The runner of a group: carries its calls out, one after another, on a thread of its own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>

#include "collectives/callbacks.h"
#include "collectives/point_to_point.h"
#include "collectives/work.h"
#include "transport/heartbeat.h"
#include "transport/mailbox.h"
#include "transport/mesh.h"

namespace fuse::distributed {

// What the end of a message is told: why it failed, or nothing; and who sent it.
using Delivery = std::function<void(const std::optional<std::string>& why, int from)>;

// A call goes so: ranks compare what they are about to do, its values are computed, the data moves,
// its targets get their values, whoever waits goes on. What goes wrong is an exception of the
// call's Work and of its targets. After a failure other than a mismatch, which every rank sees
// before anything has moved, ranks cannot know what the others have done: the group is over.
class Runner : public std::enable_shared_from_this<Runner> {
 public:
  Runner(
      const c10::intrusive_ptr<c10d::Store>& store,
      int rank,
      int size,
      std::string name,
      std::chrono::milliseconds timeout,
      bool simulated,
      py::object callbacks);

  Callbacks& callbacks() {
    return callbacks_;
  }
  // Takes the call, whose number this gives. One that the caller `waits` for at once wakes nobody:
  // see help.
  c10::intrusive_ptr<Work> add(
      Call call, c10d::OpType type, std::vector<at::Tensor> outputs, bool waits);
  // Carries out what is next, if nobody does, on the thread that waits: waking another one takes
  // longer than a small call. Whether there was anything.
  bool help();
  // Sends or receives one message; what goes wrong is the text that its end gets.
  void transfer(Message message, const std::string& call, Delivery end, bool sends);
  // Whether device tensors go by JAX's runtime.
  bool by_runtime();
  uint64_t calls();
  // Lets what has been called end, for so long, then leaves the group.
  void stop(std::chrono::milliseconds patience, const std::string& fate);

 private:
  struct Task {
    Call call;
    std::shared_ptr<Completion> completion;
  };
  void serve();
  void perform(Task& task);
  void perform_next(std::unique_lock<std::mutex>& lock);
  void carry_out(Call& call);
  Mesh& mesh();
  void fail(Task& task, const std::string& why);
  // The call has failed, and with it the group; the connection to `lost` has closed.
  void give_up(Task& task, const std::string& what, int lost = -1);
  // An error as the group's: with the call, and what is known of the ranks.
  std::string explained(
      const std::string& call, const std::string& what, const std::string& ranks) const;
  std::shared_ptr<Mailbox> open_mailbox(const std::string& call);
  void close_mailbox();

  Callbacks callbacks_;
  std::shared_ptr<Heartbeat> heartbeat_;
  int rank_;
  int size_;
  std::string name_;
  std::chrono::milliseconds timeout_;
  bool simulated_; // there are no other ranks but in name: a fake run's group
  c10::intrusive_ptr<c10d::Store> store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  uint64_t numbers_ = 0;
  bool running_ = false; // the thread
  bool busy_ = false;
  bool stopped_ = false;
  std::string over_; // why the group is
  std::shared_ptr<Mailbox> mailbox_;
  std::mutex connecting_;
  std::unique_ptr<Mesh> mesh_;
  std::atomic<int> by_runtime_{-1}; // not asked yet
};

} // namespace fuse::distributed
