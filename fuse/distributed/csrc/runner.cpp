#include "runner.h"

#include <ATen/core/grad_mode.h>

#include "check.h"

namespace fuse::distributed {

namespace {

std::string text_of(const std::exception& error) {
  const auto* ours = dynamic_cast<const c10::Error*>(&error);
  return ours != nullptr ? ours->what_without_backtrace() : error.what();
}

// A mismatch: every rank raises it, nothing has moved, and the group goes on.
class Mismatch final : public std::exception {
 public:
  explicit Mismatch(std::string text) : text_(std::move(text)) {}
  const char* what() const noexcept override {
    return text_.c_str();
  }

 private:
  std::string text_;
};

} // namespace

Runner::Runner(
    const c10::intrusive_ptr<c10d::Store>& store,
    int rank,
    int size,
    std::string name,
    py::object host)
    : host_(std::move(host)),
      peers_(std::make_shared<Peers>(store, rank, size)),
      rank_(rank),
      size_(size),
      name_(std::move(name)) {}

c10::intrusive_ptr<Work> Runner::add(
    Call call, c10d::OpType type, std::vector<at::Tensor> outputs) {
  std::unique_lock<std::mutex> lock(mutex_);
  TORCH_CHECK_WITH(DistBackendError, over_.empty(), over_);
  TORCH_CHECK_WITH(
      DistBackendError,
      !stopped_,
      call.text,
      ": the process group ",
      name_,
      " has been destroyed");
  call.number = ++numbers_;
  auto work = c10::make_intrusive<Work>(rank_, type, call.number, std::move(outputs));
  tasks_.push_back({std::move(call), work});
  if (!running_) {
    running_ = true;
    std::thread([self = shared_from_this()] { self->serve(); }).detach();
  }
  lock.unlock();
  changed_.notify_all();
  return work;
}

uint64_t Runner::calls() {
  std::lock_guard<std::mutex> guard(mutex_);
  return numbers_;
}

void Runner::serve() {
  const at::NoGradGuard no_grad;
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !tasks_.empty() || stopped_; });
    if (tasks_.empty()) {
      break;
    }
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    busy_ = true;
    lock.unlock();
    perform(task);
    task = Task(); // its tensors are let go of without the mutex
    lock.lock();
    busy_ = false;
    changed_.notify_all();
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
    peers_->note(task.call.number, task.call.text);
    carry_out(task.call);
    task.work->complete(nullptr);
  } catch (const Mismatch& error) {
    fail(task, error.what());
  } catch (const std::exception& error) {
    const std::string why =
        explained(text_of(error), task.call.number, task.call.text);
    peers_->leave("has failed in call " + std::to_string(task.call.number) + ": " + text_of(error));
    {
      std::lock_guard<std::mutex> guard(mutex_);
      over_ = "the process group " + name_ + " has failed before; destroy it and make a new one.\n" +
          "  before: " + why;
    }
    {
      std::lock_guard<std::mutex> guard(connecting_);
      gloo_.reset(); // others that wait for this rank learn at once that it will not come
    }
    fail(task, why);
  }
}

void Runner::carry_out(Call& call) {
  GlooTransport transport(gloo());
  if (size_ > 1) {
    Check check(*gloo_, call);
    for (const Source& source : call.sources) {
      host_of(source); // computed while the ranks' parts are on their way
    }
    try {
      check.finish();
    } catch (const c10::DistBackendError& error) {
      throw Mismatch(error.what_without_backtrace());
    }
  }
  if (call.on_device && host_.uses_runtime()) {
    host_.run(call);
  } else {
    transport.run(call);
  }
}

void Runner::fail(Task& task, const std::string& why) {
  for (Target& target : task.call.targets) {
    if (target.promised) {
      host_.values().fail(target.promised, why);
    }
  }
  std::exception_ptr error;
  try {
    TORCH_CHECK_WITH(DistBackendError, false, why);
  } catch (...) {
    error = std::current_exception();
  }
  task.work->complete(error);
}

std::string Runner::explained(
    const std::string& what, uint64_t number, const std::string& call) {
  return "call " + std::to_string(number) + " of the process group " + name_ + " failed on rank " +
      std::to_string(rank_) + ": " + call + peers_->blame(number) + "\n  transport: " + what;
}

c10::intrusive_ptr<c10d::Backend> Runner::gloo() {
  std::lock_guard<std::mutex> guard(connecting_);
  if (!gloo_) {
    beat_for(peers_);
    gloo_ = host_.connect();
  }
  return gloo_;
}

void Runner::stop(std::chrono::milliseconds patience, const std::string& fate) {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait_for(lock, patience, [this] { return tasks_.empty() && !busy_; });
  stopped_ = true;
  lock.unlock();
  changed_.notify_all();
  peers_->leave(fate);
  std::lock_guard<std::mutex> guard(connecting_);
  gloo_.reset();
}

} // namespace fuse::distributed
