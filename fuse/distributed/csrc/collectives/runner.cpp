#include "collectives/runner.h"

#include <ATen/core/grad_mode.h>
#include <one_thread.h>

#include "collectives/check.h"
#include "collectives/eager.h"
#include "collectives/simulated.h"
#include "transport/signals.h"

namespace fuse::distributed {

namespace {

std::string text_of(const std::exception& error) {
  const auto* ours = dynamic_cast<const c10::Error*>(&error);
  const std::string text = ours != nullptr ? ours->what_without_backtrace() : error.what();
  return text.substr(0, text.find("\n\nAt:")); // without Python's frames, which are not the user's
}

} // namespace

Runner::Runner(
    const c10::intrusive_ptr<c10d::Store>& store,
    int rank,
    int size,
    std::string name,
    std::chrono::milliseconds timeout,
    bool simulated,
    py::object callbacks)
    : callbacks_(std::move(callbacks)),
      heartbeat_(std::make_shared<Heartbeat>(store, rank, size)),
      rank_(rank),
      size_(size),
      name_(std::move(name)),
      timeout_(timeout),
      simulated_(simulated),
      store_(store) {
  if (!simulated) {
    beat_for(heartbeat_);
  }
}

c10::intrusive_ptr<Work> Runner::add(
    Call call, c10d::OpType type, std::vector<at::Tensor> outputs, bool waits) {
  std::unique_lock<std::mutex> lock(mutex_);
  TORCH_CHECK_WITH(DistBackendError, over_.empty(), over_);
  TORCH_CHECK_WITH(
      DistBackendError, !stopped_, call.text, ": the process group ", name_, " has been destroyed");
  call.number = ++numbers_;
  auto work = c10::make_intrusive<Work>(
      rank_, type, call.number, std::move(outputs), event_name(call.kind));
  work->set_helper([self = weak_from_this()] {
    const auto runner = self.lock();
    return runner != nullptr && runner->help();
  });
  tasks_.push_back({std::move(call), work->completion()});
  if (!running_) {
    running_ = true;
    std::thread([self = shared_from_this()] { self->serve(); }).detach();
  } else if (!waits) {
    lock.unlock();
    changed_.notify_all();
  }
  return work;
}

bool Runner::help() {
  std::unique_lock<std::mutex> lock(mutex_);
  if (busy_ || tasks_.empty()) {
    return false;
  }
  helping = true;
  try {
    perform_next(lock);
  } catch (...) {
    helping = false;
    throw;
  }
  helping = false;
  return true;
}

void Runner::perform_next(std::unique_lock<std::mutex>& lock) {
  const at::NoGradGuard no_grad;
  Task task = std::move(tasks_.front());
  tasks_.pop_front();
  busy_ = true;
  lock.unlock();
  std::exception_ptr interrupted;
  try {
    perform(task);
  } catch (...) {
    interrupted = std::current_exception();
  }
  lock.lock();
  busy_ = false;
  changed_.notify_all();
  if (interrupted) {
    std::rethrow_exception(interrupted);
  }
}

uint64_t Runner::calls() {
  std::lock_guard<std::mutex> guard(mutex_);
  return numbers_;
}

void Runner::serve() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return (!tasks_.empty() && !busy_) || stopped_; });
    if (tasks_.empty()) {
      break;
    }
    if (!busy_) {
      perform_next(lock);
    } else {
      changed_.wait_for(lock, std::chrono::milliseconds(100)); // stopped while another helps
    }
  }
  running_ = false;
  changed_.notify_all();
}

void Runner::perform(Task& task) {
  std::string over;
  {
    std::lock_guard<std::mutex> guard(mutex_);
    over = over_;
  }
  if (!over.empty()) {
    fail(task, over);
    return;
  }
  try {
    heartbeat_->note(task.call.number, task.call.text);
    carry_out(task.call);
    task.call = Call(); // see Completion
    task.completion->complete(nullptr);
  } catch (const Mismatch& error) {
    fail(task, error.what());
  } catch (const Interrupted& interrupted) {
    give_up(task, interrupted.what());
    throw;
  } catch (const Lost& lost) {
    give_up(task, lost.what(), lost.rank());
  } catch (const std::exception& error) {
    give_up(task, text_of(error));
  }
}

void Runner::give_up(Task& task, const std::string& what, int lost) {
  const std::string number = std::to_string(task.call.number);
  // The others first: they may be waiting, and to find who is to blame takes its time.
  heartbeat_->leave("has failed in call " + number + ": " + what);
  {
    std::lock_guard<std::mutex> guard(connecting_);
    mesh_.reset(); // others that wait for this rank learn at once that it will not come
  }
  const std::string why = explained(
      "call " + number + ": " + task.call.text, what, heartbeat_->blame(task.call.number, lost));
  {
    std::lock_guard<std::mutex> guard(mutex_);
    over_ = "the process group " + name_ + " has failed before; destroy it and make a new one.\n" +
        "  before: " + why;
  }
  close_mailbox();
  fail(task, why);
}

void Runner::carry_out(Call& call) {
  const OneThread one_thread(true); // a team of threads for each thread that computes is too many
  if (simulated_) {
    return simulate(call, callbacks_);
  }
  const bool eager = size_ > 1 && is_eager(call, rank_, size_);
  std::vector<std::string> payloads;
  if (size_ > 1) {
    payloads = checked(mesh(), rank_, size_, call, eager ? payload_of(call) : "");
  }
  // A factor of the rank's own is no part of a program that all ranks share.
  const bool shared = call.reduction.op_ != c10d::ReduceOp::PREMUL_SUM;
  if (call.on_device && shared && call.kind != Kind::Barrier && by_runtime()) {
    callbacks_.run(call);
  } else if (eager) {
    run_eager(call, payloads, rank_);
  } else if (call.kind != Kind::Barrier) {
    PointToPoint(mesh(), rank_, size_).run(call);
  }
}

bool Runner::by_runtime() {
  if (by_runtime_ < 0) { // two threads may ask: the answer is the same
    by_runtime_ = callbacks_.uses_runtime() ? 1 : 0;
  }
  return by_runtime_ == 1;
}

Mesh& Runner::mesh() {
  std::lock_guard<std::mutex> guard(connecting_);
  if (!mesh_) {
    mesh_ = std::make_unique<Mesh>(store_, rank_, size_, timeout_, [this] {
      if (helping) {
        run_signal_handlers();
      }
      const std::string gone = heartbeat_->gone();
      TORCH_CHECK_WITH(DistNetworkError, gone.empty(), "not all ranks come:", gone);
    });
  }
  return *mesh_;
}

void Runner::fail(Task& task, const std::string& why) {
  for (Target& target : task.call.targets) {
    if (target.promised) {
      callbacks_.values().fail(target.promised, why);
    }
  }
  std::exception_ptr error;
  try {
    TORCH_CHECK_WITH(DistBackendError, false, why);
  } catch (...) {
    error = std::current_exception();
  }
  task.call = Call();
  task.completion->complete(error);
}

std::string Runner::explained(
    const std::string& call, const std::string& what, const std::string& ranks) const {
  return call + ", in the process group " + name_ + ", failed on rank " + std::to_string(rank_) +
      ranks + "\n  transport: " + what;
}

std::shared_ptr<Mailbox> Runner::open_mailbox(const std::string& call) {
  TORCH_CHECK(
      !simulated_,
      call,
      ": the ranks of a fake run send no messages\n"
      "  hint: leave pipeline stages and point-to-point calls out of it");
  std::lock_guard<std::mutex> guard(mutex_);
  TORCH_CHECK_WITH(DistBackendError, over_.empty(), over_);
  TORCH_CHECK_WITH(
      DistBackendError, !stopped_, call, ": the process group ", name_, " has been destroyed");
  if (!mailbox_) {
    mailbox_ = std::make_shared<Mailbox>(store_, heartbeat_, rank_, size_);
  }
  return mailbox_;
}

void Runner::close_mailbox() {
  std::lock_guard<std::mutex> guard(mutex_);
  mailbox_.reset(); // waits for nothing
}

void Runner::transfer(Message message, const std::string& call, Delivery end, bool sends) {
  message.end = [self = shared_from_this(), call, end = std::move(end)](
                    const std::optional<Failure>& failure, int from) {
    if (!failure) {
      return end(std::nullopt, from);
    }
    const std::string ranks =
        failure->rank < 0 ? "" : self->heartbeat_->state_of(failure->rank, failure->lost);
    end(self->explained(call, failure->what, ranks), from);
  };
  const std::shared_ptr<Mailbox> mailbox = open_mailbox(call);
  sends ? mailbox->send(std::move(message)) : mailbox->receive(std::move(message));
}

void Runner::stop(std::chrono::milliseconds patience, const std::string& fate) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, patience, [this] { return tasks_.empty() && !busy_; });
  stopped_ = true;
  changed_.notify_all();
  heartbeat_->leave(fate);
  if (!busy_) {
    std::lock_guard<std::mutex> guard(connecting_);
    mesh_.reset();
  }
  lock.unlock();
  close_mailbox();
}

} // namespace fuse::distributed
