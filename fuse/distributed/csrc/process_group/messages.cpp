// Messages of a group, from one rank to another, beside its collectives.
#include <ATen/ATen.h>

#include <algorithm>

#include "collectives/values.h"
#include "process_group/arguments.h"
#include "process_group/group.h"
#include "transport/gil.h"

namespace fuse::distributed {

namespace {

std::exception_ptr error_of(const std::string& why) {
  return std::make_exception_ptr(
      c10::DistBackendError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, why));
}

// Gives what has been received to its target, or why nothing has been; the error, if there is one.
std::exception_ptr delivered(
    Runner& runner, std::optional<std::string> why, Target& target, const at::Tensor& flat) {
  try {
    if (!why) {
      give(target, flat);
    }
  } catch (const std::exception& failure) {
    why = failure.what();
  }
  if (why && target.promised) {
    runner.callbacks().values().fail(target.promised, *why);
  }
  return why ? error_of(*why) : nullptr;
}

} // namespace

// A message for people: what moves, from or to whom, and the user's line.
std::string Group::message_text(
    const char* name, const at::Tensor& tensor, const char* way, int peer) {
  const std::string line = runner_->callbacks().line();
  return std::string(name) + "(" + text_of(tensor) + ")" + way + " " +
      (peer < 0 ? "any rank" : "rank " + std::to_string(peer)) +
      (line.empty() ? "" : " at " + line);
}

Group::Pending Group::send(Tensors& tensors, int to, int tag) {
  const GilRelease released;
  check_one(tensors, "send");
  Call call;
  call.name = "send";
  read(call, tensors[0]);
  Message message;
  message.peer = to;
  message.tag = tag;
  message.bytes = host_of(call.sources[0]).view(at::kByte);
  message.deadline = Clock::now() + options_->timeout;
  auto work = c10::make_intrusive<Work>(rank_, c10d::OpType::SEND, 0, Tensors(), "tpu_dist:send");
  const auto text = message_text("send", tensors[0], " to", to);
  runner_->transfer(
      std::move(message),
      text,
      [completion = work->completion()](const auto& why, int) {
        completion->complete(why ? error_of(*why) : nullptr);
      },
      true);
  return noted(work);
}

Group::Pending Group::receive(Tensors& tensors, int from, int tag) {
  const GilRelease released;
  check_one(tensors, "recv");
  const at::Tensor& tensor = tensors[0];
  Call call;
  call.name = "recv";
  write(call, tensor);
  const Pieces pieces = pieces_of(call);
  const at::Tensor flat =
      at::empty({tensor.numel()}, at::TensorOptions().dtype(tensor.scalar_type()));
  auto work = c10::make_intrusive<Work>(rank_, c10d::OpType::RECV, 0, tensors, "tpu_dist:recv");
  const auto source = std::make_shared<std::atomic<int>>(from);
  work->set_source([source] { return source->load(); });
  if (!pieces.empty()) {
    // Not before: what is sent next must not have to wait for what comes.
    work->set_after([runner = runner_, pieces] {
      for (const auto& [part, whole] : pieces) {
        runner->callbacks().values().place(part, whole);
      }
    });
  }
  Message message;
  message.peer = from;
  message.tag = tag;
  message.bytes = flat.view(at::kByte);
  message.deadline = Clock::now() + options_->timeout;
  const auto target = std::make_shared<Target>(std::move(call.targets[0]));
  runner_->transfer(
      std::move(message),
      message_text("recv", tensor, " from", from),
      [runner = runner_, completion = work->completion(), source, flat, target](
          const auto& why, int sender) {
        const std::exception_ptr error = delivered(*runner, why, *target, flat);
        *target = Target(); // see Completion
        if (!error) {
          *source = sender;
        }
        completion->complete(error);
      },
      false);
  return noted(work);
}

Group::Pending Group::recv(Tensors& tensors, int from, int tag) {
  return receive(tensors, from, tag);
}

Group::Pending Group::recvAnysource(Tensors& tensors, int tag) {
  return receive(tensors, -1, tag);
}

} // namespace fuse::distributed
